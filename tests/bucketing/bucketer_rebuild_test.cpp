#include <gtest/gtest.h>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "weft/bucketer.hpp"

namespace weft::test {
namespace {

std::vector<std::size_t> planned_order(BucketPlan const& plan) {
  std::vector<std::size_t> order;
  for (Bucket const& bucket : plan.buckets) {
    for (BucketSlot const& slot : bucket.slots) order.push_back(slot.tensor);
  }
  return order;
}

void step_in_order(Bucketer& bucketer, int rank, std::size_t step, std::vector<std::size_t> const& order) {
  for (std::size_t const t : order) {
    write_gradient(bucketer, rank, step, t);
    bucketer.mark_ready(t);
  }
  bucketer.finish();
}

TEST(BucketerRebuild, AdoptsRankZerosOrderAndKeepsTheStepsResult) {
  run_thread_ranks(3, [](Communicator& world) {
    constexpr std::size_t kTensors = 19;
    Bucketer bucketer(world, model(kTensors, 21), {.limits = {4096, 12000}, .stream = {}});
    std::vector<std::size_t> const zeros = shuffled(kTensors, 100);
    std::vector<std::size_t> const mine = shuffled(kTensors, 100 + static_cast<std::size_t>(world.rank()));
    EXPECT_EQ(bucketer.generation(), 0U);
    std::size_t const first_buckets = bucketer.plan().buckets.size();
    step_in_order(bucketer, world.rank(), 0, mine);

    EXPECT_EQ(bucketer.generation(), 1U);
    EXPECT_EQ(planned_order(bucketer.plan()), zeros);
    EXPECT_EQ(bucketer.plan(), BucketPlan::build(model(kTensors, 21), zeros, {4096, 12000}));
    EXPECT_EQ(bucketer.timings().size(), first_buckets);
    for (std::size_t t = 0; t < kTensors; ++t) {
      std::span<float> const got = floats(bucketer.gradient(t));
      ASSERT_EQ(got.size(), model(kTensors, 21)[t].count);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], average(3, 0, t, i), 2e-5);
    }
    // Once only, whatever order comes later.
    step_in_order(bucketer, world.rank(), 1, shuffled(kTensors, 500));
    EXPECT_EQ(bucketer.generation(), 1U);
    EXPECT_EQ(planned_order(bucketer.plan()), zeros);
    EXPECT_EQ(bucketer.timings().size(), bucketer.plan().buckets.size());
  });
}

TEST(BucketerRebuild, MovesNothingWhenThePlanStays) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(8, 4), {.limits = {4096, 8192}, .stream = {}});
    void* const before = bucketer.gradient(7).data;
    BucketPlan const plan = bucketer.plan();
    step_in_order(bucketer, world.rank(), 0, {7, 6, 5, 4, 3, 2, 1, 0});
    EXPECT_EQ(bucketer.generation(), 0U);
    EXPECT_EQ(bucketer.gradient(7).data, before);
    EXPECT_EQ(bucketer.plan(), plan);
  });
}

TEST(BucketerRebuild, CanBeSwitchedOff) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, model(8, 4), {.limits = {4096, 8192}, .rebuild = false, .stream = {}});
    BucketPlan const plan = bucketer.plan();
    step_in_order(bucketer, world.rank(), 0, {0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(bucketer.generation(), 0U);
    EXPECT_EQ(bucketer.plan(), plan);
  });
}

TEST(BucketerRebuild, TensorsThatNeverCameGoLast) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>(5, TensorSpec{10}), {.limits = {1, 1}, .stream = {}});
    step_in_order(bucketer, world.rank(), 0, {1, 3});
    EXPECT_EQ(planned_order(bucketer.plan()), (std::vector<std::size_t>{1, 3, 4, 2, 0}));
    for (float const value : floats(bucketer.gradient(4))) EXPECT_EQ(value, 0.0F);
  });
}

TEST(BucketerRebuild, WaitsForASynchronisedStep) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>(4, TensorSpec{10}), {.stream = {}});
    bucketer.set_sync(false);
    step_in_order(bucketer, world.rank(), 0, {3, 0, 1, 2});
    EXPECT_EQ(bucketer.generation(), 0U);
    bucketer.set_sync(true);
    step_in_order(bucketer, world.rank(), 0, {2, 0, 1, 3});
    EXPECT_EQ(bucketer.generation(), 1U);
    EXPECT_EQ(planned_order(bucketer.plan()), (std::vector<std::size_t>{2, 0, 1, 3}));
  });
}

}  // namespace
}  // namespace weft::test
