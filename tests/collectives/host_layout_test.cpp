#include "collectives/host_layout.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

using Hosts = std::vector<int>;

TEST(HostLayout, NumbersHostsInOrderOfTheirFirstRanks) {
  EXPECT_EQ((Hosts{0, 1, 0, 2, 1}), HostLayout::number({"b", "a", "b", "c", "a"}));
}

TEST(HostLayout, HostsOfMoreRanksThanShareMemoryCountAsSeveral) {
  EXPECT_EQ((Hosts{0, 0, 0, 0}), HostLayout::limit({0, 0, 0, 0}, 4)) << "just as many";
  EXPECT_EQ((Hosts{0, 0, 0, 1, 1}), HostLayout::limit({0, 0, 0, 0, 0}, 4)) << "about equal, not 4 and 1";
  EXPECT_EQ((Hosts{0, 0, 0, 1, 1, 2, 2}), HostLayout::limit(Hosts(7, 0), 3));
  EXPECT_EQ((Hosts{0, 1, 0, 2, 1}), HostLayout::limit({0, 1, 0, 2, 1}, 2)) << "none has more";
  EXPECT_EQ((Hosts{0, 1, 0, 2, 1, 2, 1}), HostLayout::limit({0, 1, 0, 0, 1, 0, 1}, 3)) << "between those of another";
}

TEST(HostLayout, AMachineOfManyRanksIsOneWhateverItCountsAs) {
  std::vector<std::string> const names(5, "node");
  auto const many = HostLayout::find(std::vector<std::string>(5, "a"), names, 4);
  EXPECT_EQ((Hosts{0, 0, 0, 1, 1}), many.numbers);
  EXPECT_EQ(names, many.names);
  EXPECT_TRUE(many.are_several());
  EXPECT_FALSE(many.are_several_machines());
  EXPECT_FALSE(HostLayout::find(std::vector<std::string>(4, "a"), {}, 4).are_several());
  EXPECT_TRUE(HostLayout::find({"a", "a", "b"}, {}, 2).are_several_machines());
  EXPECT_TRUE(HostLayout::find({"a", "a", "a", "b"}, {}, 2).are_several_machines());
}

}  // namespace
}  // namespace weft
