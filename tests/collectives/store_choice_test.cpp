#include "collectives/shm/store_choice.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace weft::shm {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 10;

/// Nanoseconds per byte of the two ways.
struct Rates {
  double cached;
  double streamed;
};
constexpr Rates kNear{.cached = 0.05, .streamed = 0.08};
constexpr Rates kFar{.cached = 0.25, .streamed = 0.08};
/// Streaming is faster, but not by enough to make readers go to memory.
constexpr Rates kSlowEitherWay{.cached = 0.25, .streamed = 0.20};
/// As where sources come from memory: still dear, and streaming gains nothing.
constexpr Rates kCold{.cached = 0.15, .streamed = 0.16};

class StoreChoiceTest : public testing::Test {
 protected:
  /// Gives `contents` of `bytes`, each slower by up to a tenth; returns how many went past the caches. Every
  /// `interrupted`-th takes 30 times as long, 0: none.
  int give(int contents, Rates const& rates, std::size_t bytes = kBytes, int interrupted = 0) {
    int streamed = 0;
    std::uniform_real_distribution<double> noise(1.0, 1.1);
    for (int i = 1; i <= contents; ++i) {
      auto const streams = choice.of(bytes) == kernels::Store::unfenced;
      streamed += streams ? 1 : 0;
      auto const slow = interrupted > 0 && i % interrupted == 0 ? 30.0 : 1.0;
      auto const rate = (streams ? rates.streamed : rates.cached) * noise(random) * slow;
      if (choice.is_timed(bytes)) choice.took(bytes, rate * static_cast<double>(bytes));
    }
    return streamed;
  }

  StoreChoice choice;
  std::mt19937 random{20261128};  // NOLINT(cert-msc51-cpp): the same noise every time
};

TEST_F(StoreChoiceTest, RanksThatLieNearNeverGoPastTheirCaches) {
  EXPECT_EQ(0, give(10000, kNear));
}

TEST_F(StoreChoiceTest, RanksFarAwayDoFromTheFirstCallOn) {
  give(8, kFar);
  EXPECT_GE(give(10000, kFar), 9900);
}

TEST_F(StoreChoiceTest, ShortContentsFindOutToo) {
  give(64, kFar, StoreChoice::kLeastBytes);
  EXPECT_GE(give(10000, kFar, StoreChoice::kLeastBytes), 9900);
}

TEST_F(StoreChoiceTest, FollowsRanksThatAreMoved) {
  for (int turn = 0; turn < 3; ++turn) {
    give(1000, kFar);
    EXPECT_GE(give(100, kFar), 98);
    give(300, kNear);
    EXPECT_EQ(0, give(1000, kNear));
  }
}

/// As where the first contents find no pages yet.
TEST_F(StoreChoiceTest, ABadBeginningIsSoonForgotten) {
  give(5, {.cached = 2.0, .streamed = 0.08});
  give(20, kNear);
  EXPECT_EQ(0, give(1000, kNear));
}

TEST_F(StoreChoiceTest, GivesUpWhatNoLongerGains) {
  give(1000, kFar);
  give(300, kCold);
  EXPECT_LT(give(10000, kCold), 100);
}

TEST_F(StoreChoiceTest, InterruptionsDecideNothing) {
  EXPECT_EQ(0, give(10000, kNear, kBytes, 7));
  give(16, kFar, kBytes, 7);
  EXPECT_GE(give(10000, kFar, kBytes, 7), 9800);
  give(2000, kNear, kBytes, 7);
  EXPECT_LT(give(10000, kNear, kBytes, 7), 10);
}

TEST_F(StoreChoiceTest, SizesAreNotComparedWithOneAnother) {
  // Long contents are as fast either way, and short ones dear: by turns of rounds streaming would look like a gain.
  int streamed = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    streamed += give(16, kSlowEitherWay, StoreChoice::kLeastBytes);
    streamed += give(4, {.cached = 0.1, .streamed = 0.1});
  }
  EXPECT_LT(streamed, 400);  // of 40,000
}

TEST_F(StoreChoiceTest, ADearTimeWithoutGainIsForgottenOnceRanksLieNear) {
  give(100000, kSlowEitherWay);
  give(8, kNear);
  give(8, kFar);
  EXPECT_GE(give(1000, kFar), 980);
}

TEST_F(StoreChoiceTest, WhatGainsLittleIsTriedMoreAndMoreSeldom) {
  EXPECT_LT(give(1000, kSlowEitherWay), 50);
  EXPECT_LT(give(100000, kSlowEitherWay), 200);
}

TEST_F(StoreChoiceTest, VeryShortContentsStayInTheCaches) {
  give(1000, kFar);
  ASSERT_EQ(kernels::Store::unfenced, choice.of(kBytes));
  EXPECT_EQ(kernels::Store::cached, choice.of(StoreChoice::kLeastBytes - 1));
  EXPECT_FALSE(choice.is_timed(StoreChoice::kLeastBytes - 1));
}

TEST_F(StoreChoiceTest, FillsOnceAndTimesIt) {
  using namespace std::chrono_literals;
  int fills = 0;
  auto const fill = [&](kernels::Store store) {
    auto const end = std::chrono::steady_clock::now() + (store == kernels::Store::cached ? 400us : 20us);
    while (std::chrono::steady_clock::now() < end) {
    }
    ++fills;
  };
  // Until all contents of a round have been given without an interruption.
  for (int i = 0; i < 1000 && !choice.streams(kBytes); ++i) choice.fill(kBytes, fill);
  EXPECT_TRUE(choice.streams(kBytes));
  fills = 0;
  choice.fill(kBytes, fill);
  choice.fill(0, [&](kernels::Store store) {
    EXPECT_EQ(kernels::Store::cached, store);
    ++fills;
  });
  EXPECT_EQ(2, fills);
}

}  // namespace
}  // namespace weft::shm
