// What buckets and plans are made by, links measured and gradients ready: on virtual time, so that whatever else the
// machine does has no part in it.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <tuple>
#include <vector>

#include "bucketing/gradients.hpp"
#include "runtime/deadline.hpp"
#include "runtime/timeline.hpp"
#include "scheduler/small_step.hpp"
#include "simulation/simulated_ranks.hpp"
#include "weft/bucketer.hpp"
#include "weft/gradient_compression.hpp"
#include "weft/plan_executor.hpp"

namespace weft::sim {
namespace {

using std::chrono::milliseconds;
using test::floats;

constexpr EmulatedLink kLink{milliseconds(1), 1e7};
constexpr std::size_t kTensors = 10;
constexpr std::size_t kElements = 20'000;

/// All that takes time is the emulated link: messages themselves take next to none.
void on_two_ranks(std::function<void(SimulatedRank&)> const& body) {
  RankOptions how;
  how.communicator.emulated_link = kLink;
  simulate_ranks(Topology::flat(2, {1e-9, 1e15}), {}, how, body).rethrow();
}

BucketerOptions optimal(BucketCollective collective = BucketCollective::all_reduce) {
  BucketerOptions options;
  options.policy = BucketPolicy::optimal;
  options.collective = collective;
  return options;
}

void step(Bucketer& bucketer, int rank, std::size_t step) {
  for (std::size_t t = bucketer.tensor_count(); t-- > 0;) {
    test::write_gradient(bucketer, rank, step, t);
    bucketer.mark_ready(t);
  }
  bucketer.finish();
}

/// What a Bucketer with these options has measured after its first step. The next one goes by the plan made of it.
TransferCost cost_of(SimulatedRank const& self, BucketerOptions const& options) {
  Bucketer bucketer(self.world(), std::vector<TensorSpec>(kTensors, TensorSpec{kElements}), options);
  for (std::size_t number = 0; number < 2; ++number) {
    step(bucketer, self.world().rank(), number);
    if (options.collective != BucketCollective::all_reduce) continue;
    EXPECT_NEAR(floats(bucketer.gradient(3))[5], test::average(2, number, 3, 5), 0.1);
  }
  return bucketer.transfer_cost().value();
}

TEST(SimulatedCosts, AreTheLinks) {
  on_two_ranks([](SimulatedRank& self) {
    // Two hops, and twice half of the bytes; a reduce_scatter takes half of both.
    for (auto const& [collective, latency, per_byte] : {std::tuple(BucketCollective::all_reduce, 2e-3, 1e-7),
                                                        std::tuple(BucketCollective::reduce_scatter, 1e-3, 0.5e-7)}) {
      TransferCost const cost = cost_of(self, optimal(collective));
      EXPECT_NEAR(cost.seconds, latency, 0.01 * latency);
      EXPECT_NEAR(cost.seconds_per_byte, per_byte, 0.01 * per_byte);
    }
  });
}

TEST(SimulatedCosts, OfCompressedGradientsAreThoseOfHalfTheBytes) {
  on_two_ranks([](SimulatedRank& self) {
    BucketerOptions options = optimal();
    TransferCost const whole = cost_of(self, options);
    options.hook = compress_gradients({DataType::bf16, true});
    TransferCost const half = cost_of(self, options);
    EXPECT_NEAR(half.seconds_per_byte, whole.seconds_per_byte / 2, 0.01 * whole.seconds_per_byte);
  });
}

// What the step's buckets took longer than those that are measured between steps: here it is a hook's doing.
TEST(SimulatedCosts, CountWhatABucketTakesUnderComputation) {
  on_two_ranks([](SimulatedRank& self) {
    TransferCost const usual = cost_of(self, optimal());
    BucketerOptions options = optimal();
    options.hook = [](GradientBucket const& bucket) {
      if (!bucket.plan.buckets[bucket.index].slots.empty()) {
        Stream(bucket.stream).enqueue([] { sleep_until(weft::now() + milliseconds(20)); });
      }
      return bucket.communicator.all_reduce(bucket.whole, bucket.whole, bucket.op, {bucket.stream, {}});
    };
    TransferCost const cost = cost_of(self, options);
    EXPECT_NEAR(cost.seconds, usual.seconds + 0.02, 1e-4) << "neither none nor all of the buckets";
  });
}

TEST(SimulatedCosts, TheSlowestRanksReadyTimesCount) {
  on_two_ranks([](SimulatedRank& self) {
    BucketerOptions options = optimal();
    options.transfer_cost = TransferCost{2e-3, 1e-6};
    Bucketer bucketer(self.world(), std::vector<TensorSpec>(4, TensorSpec{100}), options);
    for (std::size_t t = 4; t-- > 0;) {
      if (self.world().rank() == 1 && t < 3) self.compute(milliseconds(60));
      bucketer.mark_ready(t);
    }
    EXPECT_EQ(bucketer.plan().buckets.size(), 1U);
    bucketer.finish();
    // On rank 0 all are ready at once: one bucket. On rank 1 each has arrived long before the next is ready.
    EXPECT_EQ(bucketer.plan().buckets.size(), 4U);
    EXPECT_EQ(bucketer.transfer_cost(), (TransferCost{2e-3, 1e-6}));
  });
}

TEST(SimulatedCosts, TensorsWithoutGradientAreReadyAtTheEnd) {
  on_two_ranks([](SimulatedRank& self) {
    BucketerOptions options = optimal();
    options.transfer_cost = TransferCost{1e-3, 1e-6};
    Bucketer bucketer(self.world(), std::vector<TensorSpec>(3, TensorSpec{100}), options);
    bucketer.mark_ready(0);
    bucketer.mark_ready(2);
    self.compute(milliseconds(60));
    bucketer.finish();
    ASSERT_EQ(bucketer.plan().buckets.size(), 2U);
    EXPECT_EQ(bucketer.plan().buckets[1].slots.front().tensor, 1U);
  });
}

// Ranks whose operators take different times count the larger of two medians, and the links what they are.
TEST(SimulatedCosts, OfAPlansOperatorsAndLinks) {
  on_two_ranks([](SimulatedRank& self) {
    auto& world = self.world();
    test::SmallStep small(world.rank(), world.size(), std::vector<std::size_t>(4, 100'000));
    // Forward of layer 0 on rank 0, of layer 1 on rank 1.
    auto& run = small.bindings[static_cast<std::size_t>(world.rank())].run;
    run = [&self, body = run] {
      self.compute(milliseconds(30));
      body();
    };
    PlanExecutor executor(world, small.graph, small.bindings,
                          {.cluster = test::slow_cluster(world.size()), .profile_steps = 3});
    small.executor = &executor;
    for (int i = 0; i < 4; ++i) small.step();
    ASSERT_TRUE(executor.is_measured());
    for (std::size_t const op : {0U, 1U}) EXPECT_NEAR(executor.graph().ops[op].seconds.value(), 0.03, 1e-3);
    EXPECT_LT(executor.graph().ops[2].seconds.value(), 1e-3);
    EXPECT_NEAR(executor.cluster().within.step_s, 1e-3, 1e-5);
    EXPECT_NEAR(executor.cluster().within.bytes_per_s, 1e7, 1e5);
  });
}

}  // namespace
}  // namespace weft::sim
