#include "weft/plan_executor.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "harness/ranks.hpp"
#include "scheduler/small_step.hpp"
#include "weft/error.hpp"
#include "weft/fixed_schedule.hpp"

namespace weft::test {
namespace {

std::vector<std::size_t> const kSizes{1000, 70'001, 3, 500'000, 17, 120'000, 4096};

struct Way {
  char const* name;
  StepPlanner planner;
  bool blocking = false;
};

std::vector<Way> ways() {
  return {{"program", program_schedule, true},
          {"one bucket", [](auto const& g, auto const& m) { return bucket_schedule(g, m, 1 << 30); }},
          {"buckets", [](auto const& g, auto const& m) { return bucket_schedule(g, m, 300'000); }},
          {"searched", {}},
          {"asap", [](auto const& g, auto const& m) { return plan_schedule(g, m, {.policy = SchedulePolicy::asap}); }}};
}

PlanExecutorOptions options_of(Way const& way, int ranks, int profile_steps = 2) {
  return {
      .cluster = slow_cluster(ranks), .planner = way.planner, .profile_steps = profile_steps, .blocking = way.blocking};
}

/// The weights after some steps, with a re-plan among them.
std::vector<std::vector<float>> trained(Communicator& world, Way const& way, int steps) {
  SmallStep small(world.rank(), world.size(), kSizes);
  PlanExecutor executor(world, small.graph, small.bindings, options_of(way, world.size()));
  small.executor = &executor;
  for (int step = 0; step < steps; ++step) small.step();
  EXPECT_TRUE(executor.is_measured());
  auto const wanted = small.reference(steps);
  for (std::size_t layer = 0; layer < wanted.size(); ++layer) {
    for (std::size_t i = 0; i < wanted[layer].size(); ++i) {
      if (std::abs(small.weights[layer][i] - wanted[layer][i]) > 1e-4) {
        ADD_FAILURE() << way.name << ": weight " << i << " of layer " << layer << " is " << small.weights[layer][i]
                      << ", not " << wanted[layer][i];
        return small.weights;
      }
    }
  }
  return small.weights;
}

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, WeightsAreAReferencesAndTheSameBitsWhateverThePlan) {
  std::mutex mutex;
  std::vector<std::vector<std::vector<float>>> all;
  run_thread_ranks(GetParam(), [&](Communicator& world) {
    for (Way const& way : ways()) {
      auto weights = trained(world, way, 6);
      std::lock_guard const lock(mutex);
      all.push_back(std::move(weights));
    }
  });
  ASSERT_EQ(all.size(), ways().size() * static_cast<std::size_t>(GetParam()));
  for (auto const& weights : all) {
    for (std::size_t layer = 0; layer < weights.size(); ++layer) {
      EXPECT_EQ(std::memcmp(weights[layer].data(), all[0][layer].data(), weights[layer].size() * sizeof(float)), 0);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, testing::Values(1, 2, 3), testing::PrintToStringParamName());

TEST(PlanExecutor, ComputesInThePlansOrder) {
  run_thread_ranks(2, [](Communicator& world) {
    for (Way const& way : ways()) {
      SmallStep small(world.rank(), world.size(), kSizes);
      PlanExecutor executor(world, small.graph, small.bindings, options_of(way, world.size(), 0));
      small.executor = &executor;
      small.step();
      std::vector<OpId> planned;
      for (Launch const& launch : executor.plan().launches) {
        if (launch.resource == Resource::compute) planned.push_back(launch.ops.front());
      }
      EXPECT_EQ(small.ran, planned) << way.name;
    }
  });
}

/// Whoever is late on one rank is late for the others; nothing starts before what it waits for.
TEST(PlanExecutor, DependenciesHoldHoweverLongOperatorsTake) {
  run_thread_ranks(2, [](Communicator& world) {
    SmallStep small(world.rank(), world.size(), kSizes);
    for (std::size_t op = 0; op < small.bindings.size(); ++op) {
      if (!small.bindings[op].run) continue;
      small.bindings[op].run = [run = small.bindings[op].run,
                                late = (op + static_cast<std::size_t>(world.rank())) % 3] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2 * late));
        run();
      };
    }
    PlanExecutor executor(world, small.graph, small.bindings, options_of(ways()[2], world.size(), 0));
    small.executor = &executor;
    small.step();
    auto const times = executor.timings();
    std::map<TensorId, OpId> writer;
    for (std::size_t op = 0; op < small.graph.ops.size(); ++op) {
      for (TensorId const tensor : small.graph.ops[op].writes) writer[tensor] = static_cast<OpId>(op);
    }
    int edges = 0;
    for (std::size_t op = 0; op < small.graph.ops.size(); ++op) {
      EXPECT_LE(times[op].started, times[op].finished);
      for (TensorId const tensor : small.graph.ops[op].reads) {
        if (!writer.contains(tensor)) continue;
        ++edges;
        EXPECT_LE(times[static_cast<std::size_t>(writer[tensor])].finished, times[op].started)
            << small.graph.ops[op].name;
      }
    }
    EXPECT_GT(edges, 20);
  });
}

TEST(PlanExecutor, MergedCollectivesAreOneTransferAndLieTogether) {
  run_thread_ranks(2, [](Communicator& world) {
    SmallStep small(world.rank(), world.size(), kSizes);
    PlanExecutor executor(world, small.graph, small.bindings, options_of(ways()[1], world.size(), 0));
    small.executor = &executor;
    small.step();
    std::set<std::chrono::steady_clock::time_point> starts;
    for (OpId const op : small.gradients) starts.insert(executor.timings()[static_cast<std::size_t>(op)].started);
    EXPECT_EQ(starts.size(), 1U);
  });
}

/// Ranks whose operators take different times come to one plan, by the larger of two medians. What is measured of
/// links, and of operators to the millisecond, is in simulation/simulated_costs_test.cpp.
TEST(PlanExecutor, RanksAgreeOnWhatWasMeasured) {
  std::mutex mutex;
  std::vector<std::vector<double>> seconds;
  std::vector<std::vector<std::vector<OpId>>> plans;
  run_thread_ranks(2, [&](Communicator& world) {
    SmallStep small(world.rank(), world.size(), kSizes);
    for (int slow : {0, 1}) {  // forward of layer 0 on rank 0, of layer 1 on rank 1
      if (slow != world.rank()) continue;
      auto& run = small.bindings[static_cast<std::size_t>(slow)].run;
      run = [body = run] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        body();
      };
    }
    PlanExecutor executor(world, small.graph, small.bindings, options_of(ways()[3], world.size(), 3));
    small.executor = &executor;
    for (int step = 0; step < 3; ++step) {
      small.step();
      EXPECT_FALSE(executor.is_measured());
    }
    small.step();
    EXPECT_TRUE(executor.is_measured());
    small.step();
    std::vector<double> here;
    for (OpNode const& op : executor.graph().ops) here.push_back(op.seconds.value_or(-1));
    here.push_back(executor.cluster().within.bytes_per_s);
    here.push_back(executor.cluster().within.step_s);
    std::vector<std::vector<OpId>> launches;
    for (Launch const& launch : executor.plan().launches) launches.push_back(launch.ops);
    std::lock_guard const lock(mutex);
    seconds.push_back(here);
    plans.push_back(launches);
  });
  ASSERT_EQ(seconds.size(), 2U);
  EXPECT_EQ(seconds[0], seconds[1]);
  EXPECT_EQ(plans[0], plans[1]);
  EXPECT_GE(seconds[0][0], 0.03);
  EXPECT_GE(seconds[0][1], 0.03);
}

}  // namespace
}  // namespace weft::test
