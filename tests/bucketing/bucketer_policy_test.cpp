// What plans hang on, costs and the times at which gradients are ready, is in simulation/simulated_costs_test.cpp.
#include <gtest/gtest.h>

#include <mutex>

#include "bucketing/gradients.hpp"
#include "harness/ranks.hpp"
#include "weft/bucketer.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kTensors = 23;

BucketerOptions optimal(BucketCollective collective = BucketCollective::all_reduce) {
  BucketerOptions options;
  options.limits = {4096, 16384};
  options.policy = BucketPolicy::optimal;
  options.collective = collective;
  return options;
}

void step(Bucketer& bucketer, int rank, std::size_t step) {
  for (std::size_t const t : shuffled(bucketer.tensor_count(), 10 * step + static_cast<std::size_t>(rank))) {
    write_gradient(bucketer, rank, step, t);
    bucketer.mark_ready(t);
  }
  bucketer.finish();
}

class PolicyRanks : public testing::TestWithParam<int> {};

TEST_P(PolicyRanks, ThePolicyPlansOnceAndChangesNoBits) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Bucketer bucketer(world, model(kTensors, 5), optimal());
    Bucketer reference(world, model(kTensors, 5));
    EXPECT_FALSE(bucketer.transfer_cost());
    for (std::size_t s = 0; s < 4; ++s) {
      step(bucketer, world.rank(), s);
      step(reference, world.rank(), s);
      ASSERT_TRUE(same_bits(all_gradients(bucketer), all_gradients(reference)));
      EXPECT_LE(bucketer.generation(), 1U);
    }
    ASSERT_TRUE(bucketer.transfer_cost());
    EXPECT_GT(bucketer.transfer_cost()->seconds + bucketer.transfer_cost()->seconds_per_byte, 0.0);
  });
}

TEST_P(PolicyRanks, AllRanksMakeTheSamePlan) {
  for (BucketCollective const collective :
       {BucketCollective::all_reduce, BucketCollective::reduce_scatter, BucketCollective::reduce_scatter_and_release}) {
    std::mutex mutex;
    std::vector<BucketPlan> plans;
    std::vector<TransferCost> costs;
    run_thread_ranks(GetParam(), [&](Communicator& world) {
      Bucketer bucketer(world, model(kTensors, 7), optimal(collective));
      step(bucketer, world.rank(), 0);
      step(bucketer, world.rank(), 1);
      std::lock_guard lock(mutex);
      plans.push_back(bucketer.plan());
      costs.push_back(bucketer.transfer_cost().value());
    });
    for (BucketPlan const& plan : plans) EXPECT_EQ(plan, plans.front());
    for (TransferCost const& cost : costs) EXPECT_EQ(cost, costs.front());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PolicyRanks, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST(BucketPolicy, WhatIsReadyAtOnceTravelsTogether) {
  run_thread_ranks(2, [](Communicator& world) {
    BucketerOptions options = optimal();
    options.limits = {1, 1};
    options.transfer_cost = TransferCost{10, 0};
    Bucketer bucketer(world, std::vector<TensorSpec>(4, TensorSpec{100}), options);
    EXPECT_EQ(bucketer.plan().buckets.size(), 4U);
    step(bucketer, world.rank(), 0);
    EXPECT_EQ(bucketer.plan().buckets.size(), 1U);
  });
}

TEST(BucketPolicy, WithoutRebuildCapsHold) {
  run_thread_ranks(2, [](Communicator& world) {
    BucketerOptions options = optimal();
    options.rebuild = false;
    Bucketer bucketer(world, model(kTensors, 5), options);
    BucketPlan const before = bucketer.plan();
    step(bucketer, world.rank(), 0);
    EXPECT_EQ(bucketer.plan(), before);
    EXPECT_FALSE(bucketer.transfer_cost());
  });
}

TEST(BucketPolicy, NothingToSendHasAPlanToo) {
  run_thread_ranks(2, [](Communicator& world) {
    Bucketer bucketer(world, std::vector<TensorSpec>(3), optimal());
    for (std::size_t s = 0; s < 2; ++s) step(bucketer, world.rank(), s);
    EXPECT_EQ(bucketer.plan().buckets.size(), 1U);
  });
}

TEST(BucketPolicy, ImpossibleCostsAreRefusedBeforeAnythingIsSent) {
  run_thread_ranks(1, [](Communicator& world) {
    BucketerOptions options = optimal();
    options.transfer_cost = TransferCost{-1, 0};
    EXPECT_THROW(Bucketer(world, model(3, 1), options), Error);
    options.transfer_cost.reset();
    options.policy = static_cast<BucketPolicy>(7);
    EXPECT_THROW(Bucketer(world, model(3, 1), options), Error);
  });
}

}  // namespace
}  // namespace weft::test
