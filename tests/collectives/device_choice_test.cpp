// Which way device memory goes, from what all ranks say of themselves.
#include "collectives/device_choice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "weft/error.hpp"

namespace weft {
namespace {

using Way = DeviceChoice::Way;

/// A rank for each letter, on the host of that name.
std::vector<DeviceIntroduction> ranks_on(std::string const& hosts,
                                         DeviceBackendKind wanted = DeviceBackendKind::automatic) {
  std::vector<DeviceIntroduction> ranks(hosts.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    ranks[rank].host[0] = hosts[rank];
    ranks[rank].wanted = wanted;
    ranks[rank].has_nccl = true;
  }
  return ranks;
}

Error error_of(std::vector<DeviceIntroduction> const& ranks) {
  try {
    static_cast<void>(choose(ranks));
  } catch (Error const& error) {
    return error;
  }
  return {ErrorCode::system, "nothing was thrown"};
}

void expect_words(std::string const& text, std::vector<std::string> const& words) {
  for (auto const& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(DeviceChoice, FollowsFromWhereTheRanksAre) {
  struct Expected {
    std::string hosts;
    Way way;
    std::string why;
  };
  for (auto const& [hosts, way, why] :
       {Expected{"a", Way::nccl, "one host"}, Expected{"aaaa", Way::nccl, "one host"},
        Expected{"aabb", Way::two_level, "2 hosts"}, Expected{"abcabc", Way::two_level, "3 hosts"},
        Expected{"abcd", Way::staged, "each of 4 hosts has one rank"}, Expected{"aab", Way::staged, "from 1 to 2"}}) {
    auto const choice = choose(ranks_on(hosts));
    EXPECT_EQ(choice.way, way) << hosts;
    EXPECT_FALSE(choice.told);
    EXPECT_EQ(choice.regret, way == Way::staged) << hosts;
    expect_words(choice.why, {why});
  }
}

TEST(DeviceChoice, TheSettingDecides) {
  EXPECT_EQ(choose(ranks_on("aabb", DeviceBackendKind::nccl)).way, Way::spanning);
  EXPECT_EQ(choose(ranks_on("ab", DeviceBackendKind::nccl)).way, Way::spanning);
  EXPECT_EQ(choose(ranks_on("aa", DeviceBackendKind::nccl)).way, Way::nccl);
  EXPECT_EQ(choose(ranks_on("aabb", DeviceBackendKind::hierarchical)).way, Way::two_level);
  EXPECT_EQ(choose(ranks_on("aa", DeviceBackendKind::hierarchical)).way, Way::nccl);
  for (std::string const hosts : {"aa", "aabb", "ab"}) {
    auto const choice = choose(ranks_on(hosts, DeviceBackendKind::staged));
    EXPECT_EQ(choice.way, Way::staged);
    EXPECT_TRUE(choice.told);
    EXPECT_FALSE(choice.regret);
    EXPECT_EQ(choice.why, "WEFT_DEVICE_BACKEND=staged");
  }
}

TEST(DeviceChoice, ARankWithoutNcclIsNamed) {
  for (auto const wanted : {DeviceBackendKind::automatic, DeviceBackendKind::nccl, DeviceBackendKind::hierarchical}) {
    auto ranks = ranks_on("aabb", wanted);
    ranks[2].has_nccl = false;
    std::string("no libnccl.so.2").copy(ranks[2].why_not, sizeof ranks[2].why_not - 1);
    if (wanted == DeviceBackendKind::automatic) {
      EXPECT_EQ(choose(ranks).way, Way::staged);
      EXPECT_EQ(choose(ranks).why, "rank 2: no libnccl.so.2");
      continue;
    }
    auto const error = error_of(ranks);
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    expect_words(error.what(), {"rank 2: no libnccl.so.2", "WEFT_DEVICE_BACKEND=" + std::string(to_string(wanted))});
  }
}

TEST(DeviceChoice, SettingsThatDifferNameBothRanks) {
  auto ranks = ranks_on("aaab");
  ranks[3].wanted = DeviceBackendKind::staged;
  auto const error = error_of(ranks);
  EXPECT_EQ(error.code(), ErrorCode::mismatch);
  expect_words(error.what(), {"rank 0 has auto", "rank 3 has staged", "WEFT_DEVICE_BACKEND"});
}

}  // namespace
}  // namespace weft
