#include "pace.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace train_gpt {
namespace {

using namespace std::chrono_literals;

Pace::TimePoint const kStart{};

/// The steps of a run that get a line, when each takes `step`.
std::vector<int> lines_of(int first, int steps, std::chrono::milliseconds step) {
  Pace pace(first, steps, kStart);
  std::vector<int> lines;
  for (int done = first + 1; done <= steps; ++done) {
    if (pace.step_done(done, kStart + step * (done - first))) lines.push_back(done);
  }
  return lines;
}

TEST(Pace, AQuickRunGetsALineForEveryTenth) {
  EXPECT_EQ(lines_of(0, 10'000, 1ms),
            (std::vector<int>{1, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10'000}));
  EXPECT_EQ(lines_of(50, 60, 1ms).size(), 10U);
  EXPECT_EQ(lines_of(0, 1, 1ms), (std::vector<int>{1}));
}

TEST(Pace, ALongRunGetsALineAMinute) {
  std::vector<int> const lines = lines_of(0, 10'000, 1s);  // nearly three hours
  EXPECT_GE(lines.size(), 10'000U / 60);
  EXPECT_LE(lines.size(), 10'000U / 60 + 11);
  for (std::size_t i = 1; i < lines.size(); ++i) EXPECT_LE(lines[i] - lines[i - 1], 60);
  EXPECT_EQ(lines.back(), 10'000);
}

TEST(Pace, WhatIsLeftFollowsTheStepsOfLate) {
  Pace pace(100, 1000, kStart);
  auto now = kStart + 30s;  // cold memory
  (void)pace.step_done(101, now);
  EXPECT_DOUBLE_EQ(pace.left().count(), 899 * 30.0);  // nothing better is known
  for (int done = 102; done <= 300; ++done) (void)pace.step_done(done, now += 100ms);
  EXPECT_NEAR(pace.left().count(), 70.0, 1e-6);  // the first step is forgotten
  for (int done = 301; done <= 700; ++done) (void)pace.step_done(done, now += 200ms);
  EXPECT_NEAR(pace.left().count(), 60.0, 0.1);
  for (int done = 701; done <= 1000; ++done) (void)pace.step_done(done, now += 200ms);
  EXPECT_EQ(pace.left().count(), 0.0);
  EXPECT_NEAR(pace.elapsed().count(), 30 + 19.9 + 80 + 60, 1e-6);
}

TEST(Pace, DescribesTimes) {
  EXPECT_EQ(describe(0s), "0s");
  EXPECT_EQ(describe(59.4s), "59s");
  EXPECT_EQ(describe(59.6s), "1m 00s");
  EXPECT_EQ(describe(125s), "2m 05s");
  EXPECT_EQ(describe(1h + 3min + 20s), "1h 03m");
  EXPECT_EQ(describe(52h), "2d 04h");
}

}  // namespace
}  // namespace train_gpt
