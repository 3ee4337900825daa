#include "weft/lr_schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "weft/error.hpp"

namespace weft::test {
namespace {

TEST(LrScheduleTest, WarmsUpLinearly) {
  for (auto const decay : {LrDecay::constant, LrDecay::linear, LrDecay::cosine, LrDecay::inverse_square_root}) {
    LrSchedule const schedule{.peak_lr = 8, .warmup_steps = 4, .total_steps = 10, .decay = decay};
    schedule.check();
    for (int applied = 0; applied < 4; ++applied) EXPECT_DOUBLE_EQ(schedule.at(applied), 2.0 * (applied + 1));
  }
}

TEST(LrScheduleTest, FallsToItsEndAndStaysThere) {
  for (auto const decay : {LrDecay::linear, LrDecay::cosine}) {
    LrSchedule const schedule{.peak_lr = 8, .warmup_steps = 4, .total_steps = 12, .final_lr = 1, .decay = decay};
    EXPECT_DOUBLE_EQ(schedule.at(7), 4.5) << "half-way";
    EXPECT_DOUBLE_EQ(schedule.at(11), 1);
    EXPECT_DOUBLE_EQ(schedule.at(1000), 1);
    for (int applied = 4; applied < 11; ++applied) EXPECT_GT(schedule.at(applied), schedule.at(applied + 1));
  }
  LrSchedule const cosine{.peak_lr = 8, .total_steps = 12, .decay = LrDecay::cosine};
  EXPECT_NEAR(cosine.at(2), 4 * (1 + std::sqrt(0.5)), 1e-12) << "a quarter of the way";
}

TEST(LrScheduleTest, InverseSquareRootMeetsWarmUpAtThePeak) {
  LrSchedule const schedule{.peak_lr = 8, .warmup_steps = 100, .decay = LrDecay::inverse_square_root};
  EXPECT_DOUBLE_EQ(schedule.at(99), 8);
  EXPECT_DOUBLE_EQ(schedule.at(399), 4);
}

TEST(LrScheduleTest, RefusesWhatMakesNoSense) {
  EXPECT_THROW((LrSchedule{.peak_lr = -1}.check()), Error);
  EXPECT_THROW((LrSchedule{.warmup_steps = -1}.check()), Error);
  EXPECT_THROW((LrSchedule{.final_lr = NAN}.check()), Error);
  EXPECT_THROW((LrSchedule{.warmup_steps = 10, .total_steps = 10, .decay = LrDecay::linear}.check()), Error);
}

}  // namespace
}  // namespace weft::test
