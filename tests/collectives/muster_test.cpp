// Survivors find one another: one rank is real, the others are what they would write.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "collectives/shm/muster.hpp"
#include "weft/error.hpp"

namespace weft::shm {
namespace {

using namespace std::chrono_literals;

constexpr auto kTimeout = 60s;

class MusterTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  MusterTest() {
    for (int peer = 1; peer < kRanks; ++peer) lines[peer].musters = 1;
  }

  /// What `call()` throws, which it does at once.
  template <typename Call>
  static Error failure_of(Call const& call) {
    auto const began = std::chrono::steady_clock::now();
    try {
      call();
    } catch (Error const& error) {
      EXPECT_LT(std::chrono::steady_clock::now() - began, kTimeout / 2) << error.what();
      return error;
    }
    return {ErrorCode::system, "did not throw"};
  }
  void post(int peer, std::uint64_t number, std::uint32_t bytes) {
    lines[peer].lengths[number % 2] = bytes;
    lines[peer].posted = std::uint64_t{1} << 32U | number;
  }
  [[nodiscard]] std::vector<std::byte> gather(std::vector<int> const& members) {
    std::array<std::byte, 4> const mine{std::byte{7}};
    return muster.all_gather(members, mine, kTimeout);
  }

  std::shared_ptr<Mapping> memory =
      create_segment(0, 1, Muster::bytes(kRanks), Muster::bytes(kRanks),
                     [](std::span<std::byte const> mine) { return std::vector<std::byte>(mine.begin(), mine.end()); });
  MusterLines* lines = reinterpret_cast<MusterLines*>(memory->data());
  std::array<PeerState, kRanks> states{};
  Muster muster{memory, 0, 0, kRanks, [this](int rank) { return states.at(static_cast<std::size_t>(rank)); }};
};

// Rank 2 came, was seen, and died before rank 1 looked: rank 1 waits until this rank has seen that too.
TEST_F(MusterTest, ARankThatKnowsOfALossIsNotWaitedForInTheNextStep) {
  auto const members = muster.call(kTimeout);
  ASSERT_EQ(members, (std::vector<int>{0, 1, 2}));
  post(2, 1, 4);
  states[2] = PeerState::died;
  lines[1].lost = std::uint64_t{1} << 2U;
  EXPECT_EQ(failure_of([&] { static_cast<void>(gather(members)); }).code(), ErrorCode::peer_lost);
  EXPECT_EQ(failure_of([&] { static_cast<void>(muster.conclude(members, {}, kTimeout)); }).code(),
            ErrorCode::peer_lost);
  lines[1].musters = 2;
  EXPECT_EQ(muster.call(kTimeout), (std::vector<int>{0, 1}));
}

TEST_F(MusterTest, WhoConcludesWhileOthersWaitForItTellsThemWhy) {
  auto const members = muster.call(kTimeout);
  lines[1].outcome = Outcome::of(Error(ErrorCode::out_of_memory, "no room"));
  lines[1].concluded = 1;
  auto const error = failure_of([&] { static_cast<void>(gather(members)); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_NE(std::string(error.what()).find("rank 1: no room"), std::string::npos) << error.what();
}

// Rank 1 may still read the block of the step before, which rank 2 did not live to see.
TEST_F(MusterTest, WhatOthersMayReadStaysWhenAStepHasFailed) {
  auto const members = muster.call(kTimeout);
  post(1, 1, 4);
  post(2, 1, 4);
  EXPECT_EQ(gather(members).size(), 12U);
  states[2] = PeerState::died;
  EXPECT_EQ(failure_of([&] { static_cast<void>(gather(members)); }).code(), ErrorCode::peer_lost);
  auto const posted = lines[0].posted.load();
  std::array<std::byte, sizeof lines[0].blocks> before{};
  std::memcpy(before.data(), lines[0].blocks, before.size());
  Outcome const mine = Outcome::of(Error(ErrorCode::peer_lost, "rank 2 was lost"));
  lines[1].concluded = 1;
  EXPECT_EQ(failure_of([&] { static_cast<void>(muster.conclude(members, mine, kTimeout)); }).code(),
            ErrorCode::peer_lost);
  EXPECT_EQ(lines[0].posted, posted);
  EXPECT_EQ(std::memcmp(before.data(), lines[0].blocks, before.size()), 0);
}

TEST_F(MusterTest, AWordSaidBeforeARankWentCounts) {
  auto const members = muster.call(kTimeout);
  for (int peer = 1; peer < kRanks; ++peer) lines[peer].concluded = 1;
  states[2] = PeerState::died;
  auto const all = muster.conclude(members, {}, kTimeout);
  EXPECT_EQ(all.size(), 3U);
  EXPECT_FALSE(first_failure(all));
}

TEST(Outcomes, ALossComesFirstThenACauseThenWhatFollowsFromIt) {
  auto const outcome = [](ErrorCode code) { return Outcome::of(Error(code, "why")); };
  std::vector<Outcome> all{{}, outcome(ErrorCode::timeout), outcome(ErrorCode::aborted)};
  std::array const names{0, 2, 5, 6, 7};
  EXPECT_EQ(first_failure(all, names)->code(), ErrorCode::aborted);
  all.push_back(outcome(ErrorCode::out_of_memory));
  EXPECT_EQ(first_failure(all, names)->code(), ErrorCode::out_of_memory);
  EXPECT_STREQ(first_failure(all, names)->what(), "rank 6: why");
  all.push_back(outcome(ErrorCode::peer_lost));
  EXPECT_EQ(first_failure(all)->code(), ErrorCode::peer_lost);
}

}  // namespace
}  // namespace weft::shm
