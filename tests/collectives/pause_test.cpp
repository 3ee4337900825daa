#include "collectives/ucx/pause.hpp"

#include <gtest/gtest.h>

namespace weft::ucx {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kChunk = 256 << 10;
constexpr double kGigabit = 1 / 119e6;  // seconds a byte, of one Gb/s without what headers take

TEST(PauseBetweenLooks, LongCallsLookAwayForAsLongAsAnyMay) {
  EXPECT_EQ(pause_between_looks(1 << 20, kChunk, kGigabit), microseconds(500));
  EXPECT_EQ(pause_between_looks(std::size_t{1} << 40, kChunk, kGigabit), microseconds(500));
}

TEST(PauseBetweenLooks, ACallEndsAtMostASixteenthLater) {
  for (std::size_t bytes = 1; bytes <= 16 << 20; bytes = bytes * 3 / 2 + 1) {
    auto const takes = static_cast<double>(bytes) * kGigabit;
    EXPECT_LE(static_cast<double>(pause_between_looks(bytes, kChunk, kGigabit).count()) * 1e-6, takes / 16) << bytes;
  }
  EXPECT_EQ(pause_between_looks(512 << 10, kChunk, kGigabit), microseconds(275));  // 4.4 ms / 16
}

TEST(PauseBetweenLooks, SmallCallsDoNotLookAway) {
  EXPECT_EQ(pause_between_looks(0, kChunk, kGigabit), microseconds(0));
  EXPECT_EQ(pause_between_looks(64 << 10, kChunk, kGigabit), microseconds(0));
}

TEST(PauseBetweenLooks, WhatWasAskedForAheadIsNeverAllThere) {
  for (auto const rate : {66e6, 119e6, 1.2e9, 3e9, 12e9, 50e9}) {
    for (std::size_t const chunk : {4096, 256 << 10, 4 << 20}) {
      auto const pause = static_cast<double>(pause_between_looks(1 << 30, chunk, 1 / rate).count()) * 1e-6;
      EXPECT_LE(pause * rate, static_cast<double>(chunk)) << rate;
      EXPECT_LE(pause * rate, 512 << 10) << rate << ": more than the kernel keeps";
    }
  }
}

TEST(PauseBetweenLooks, FastNetworksAreAlwaysLookedAt) {
  EXPECT_EQ(pause_between_looks(1 << 30, kChunk, 1 / 12e9), microseconds(0));
  EXPECT_GT(pause_between_looks(1 << 30, kChunk, 1 / 1.2e9), microseconds(100));  // 10 Gb/s
}

}  // namespace
}  // namespace weft::ucx
