#include "weft/grad_scaler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "weft/error.hpp"
#include "weft/gradients.hpp"

namespace weft::test {
namespace {

void finish_step(GradScaler& scaler, bool overflowed) {
  if (overflowed) scaler.found_inf() = 1;
  scaler.update();
}

TEST(GradScalerTest, GrowsAfterAnIntervalAndFallsAtOverflows) {
  GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_EQ(scaler.inv_scale(), 1.0F / 1024);
  for (bool const overflowed : {false, false}) finish_step(scaler, overflowed);
  EXPECT_EQ(scaler.scale(), 1024);
  finish_step(scaler, false);
  EXPECT_EQ(scaler.scale(), 2048);
  for (bool const overflowed : {false, false, true}) finish_step(scaler, overflowed);
  EXPECT_EQ(scaler.scale(), 1024) << "and the interval begins anew:";
  EXPECT_EQ(scaler.found_inf(), 0);
  for (bool const overflowed : {false, false}) finish_step(scaler, overflowed);
  EXPECT_EQ(scaler.scale(), 1024);
  finish_step(scaler, true);
  finish_step(scaler, true);
  EXPECT_EQ(scaler.scale(), 256);
}

TEST(GradScalerTest, AScaleThatIsSetEndsAStepToo) {
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  finish_step(scaler, false);
  scaler.found_inf() = 1;
  EXPECT_THROW(scaler.update_to(0), Error);
  EXPECT_EQ(scaler.update_count(), 1U);
  EXPECT_EQ(scaler.found_inf(), 1);
  scaler.update_to(64);
  EXPECT_EQ(scaler.update_count(), 2U);
  EXPECT_EQ(scaler.found_inf(), 0);
  EXPECT_EQ(scaler.scale(), 64);
  EXPECT_EQ(scaler.inv_scale(), 1.0F / 64);
  finish_step(scaler, false);
  EXPECT_EQ(scaler.scale(), 128) << "after the second step without an overflow";
}

TEST(GradScalerTest, HysteresisForgivesTheFirstOverflows) {
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2, .hysteresis = 2});
  finish_step(scaler, true);
  EXPECT_EQ(scaler.scale(), 1024);
  finish_step(scaler, true);
  EXPECT_EQ(scaler.scale(), 512);
  finish_step(scaler, true);
  EXPECT_EQ(scaler.scale(), 256);
  finish_step(scaler, false);
  finish_step(scaler, false);
  EXPECT_EQ(scaler.scale(), 512);
  finish_step(scaler, true);
  EXPECT_EQ(scaler.scale(), 512) << "forgiven again since it has grown";
}

TEST(GradScalerTest, StaysAnOrdinaryNumber) {
  GradScaler scaler({.growth_interval = 1});
  for (int step = 0; step < 300; ++step) finish_step(scaler, false);
  EXPECT_TRUE(std::isnormal(scaler.scale()) && std::isnormal(scaler.inv_scale())) << scaler.scale();
  for (int step = 0; step < 600; ++step) finish_step(scaler, true);
  EXPECT_TRUE(std::isnormal(scaler.scale()) && std::isnormal(scaler.inv_scale())) << scaler.scale();
}

TEST(GradScalerTest, DisabledItChangesNothing) {
  GradScaler scaler({.enabled = false});
  finish_step(scaler, true);
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_EQ(scaler.inv_scale(), 1);
}

TEST(GradScalerTest, OptionsChangeWithoutMovingTheScale) {
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  float const* const there = scaler.inputs().inv_scale;
  finish_step(scaler, false);
  scaler.set_options({.growth_factor = 4, .growth_interval = 3});
  finish_step(scaler, false);
  EXPECT_EQ(scaler.scale(), 1024);
  finish_step(scaler, false);
  EXPECT_EQ(scaler.scale(), 4096);
  EXPECT_EQ(scaler.inputs().inv_scale, there);
  EXPECT_THROW(scaler.set_options({.growth_factor = 0.5}), Error);
  EXPECT_THROW(scaler.set_options({.enabled = false}), Error);
}

TEST(GradScalerTest, ResumesFromItsState) {
  GradScalerOptions const options{.init_scale = 64, .growth_interval = 4, .hysteresis = 2};
  GradScaler one(options);
  for (bool const overflowed : {false, true, false, false}) finish_step(one, overflowed);
  GradScaler two(options);
  two.set_state(one.state());
  for (bool const overflowed : {false, true, true, false, false, false, false}) {
    finish_step(one, overflowed);
    finish_step(two, overflowed);
    EXPECT_EQ(one.state(), two.state());
  }
  EXPECT_THROW(two.set_state({.scale = 0}), Error);
  EXPECT_THROW(two.set_state({.scale = std::numeric_limits<float>::infinity()}), Error);
}

/// A model of one weight whose gradient overflows f16 at large scales: training goes on once the scale has fallen.
TEST(GradScalerTest, FindsAScaleThatFits) {
  std::vector<float> weight{4};
  Optimizer optimizer({BufferView(std::span(weight))}, SgdOptions{.lr = 0.1});
  GradScaler scaler({.init_scale = 1 << 20, .growth_interval = 50});
  for (int step = 0; step < 100; ++step) {
    std::vector<Half> gradient{to_half(scaler.scale() * weight[0])};  // of weight²/2
    std::vector<BufferView> const views{BufferView(std::span(gradient))};
    scaler.found_inf() = gradient_norm(views).finite ? 0 : 1;
    optimizer.step(views, scaler.inputs());
    scaler.update();
  }
  EXPECT_LT(scaler.scale(), 1 << 20);
  EXPECT_LT(optimizer.step_count(), 100);
  EXPECT_GT(optimizer.step_count(), 80);
  EXPECT_LT(weight[0], 0.01F);
}

TEST(GradScalerTest, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(GradScaler({.init_scale = 0}), Error);
  EXPECT_THROW(GradScaler({.init_scale = 1e39}), Error);
  EXPECT_THROW(GradScaler({.growth_factor = 1}), Error);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), Error);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), Error);
  EXPECT_THROW(GradScaler({.hysteresis = 0}), Error);
}

}  // namespace
}  // namespace weft::test
