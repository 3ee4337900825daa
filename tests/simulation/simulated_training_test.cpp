// Whatever is built on communicators, on virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "scheduler/small_step.hpp"
#include "simulation/simulated_ranks.hpp"
#include "weft/data_parallel.hpp"
#include "weft/error.hpp"
#include "weft/plan_executor.hpp"
#include "weft/zero_optimizer.hpp"

namespace weft::sim {
namespace {

using std::chrono::milliseconds;

constexpr LinkSpeed kLink{10e-6, 1e9};
constexpr int kLayers = 10;
constexpr std::size_t kElements = 250'000;   // of a layer: 1 MB
constexpr auto kBackward = milliseconds(4);  // of a layer

Options sizes_alone() {
  Options options;
  options.carries_data = false;
  return options;
}

BucketerOptions one_layer_a_bucket() {
  BucketerOptions options;
  options.limits = {.first_bytes = 1 << 20, .bytes = 1 << 20, .last_bytes = 1 << 20};
  return options;
}

/// Backward of all layers, last to first, and what the step's communication cost.
OverlapReport step(SimulatedRank& self, DataParallel& ddp) {
  auto const begin = self.now();
  std::vector<Interval> compute;
  for (std::size_t layer = ddp.parameter_count(); layer-- > 0;) {
    compute.push_back(self.compute(kBackward));
    ddp.mark_ready(layer);
  }
  ddp.finish();
  return OverlapReport::build({begin, self.now()}, compute, ddp.bucketer().timings());
}

/// The last of three steps, as rank 0 sees it.
struct Trained {
  OverlapReport report;
  Outcome outcome;
};

Trained train(Topology const& topology, Options const& options, BucketerOptions const& bucketer = one_layer_a_bucket(),
              int layers = kLayers, std::size_t elements = kElements) {
  Trained result;
  std::vector<Buffer> parameters;  // of all ranks: nobody looks at them
  std::vector<BufferView> views;
  for (int layer = 0; layer < layers; ++layer) {
    parameters.push_back(Buffer::host(elements, DataType::f32));
    views.push_back(parameters.back().view());
  }
  result.outcome = simulate_ranks(topology, options, {}, [&](SimulatedRank& self) {
    DataParallel ddp(self.world(), views, bucketer);
    OverlapReport report;
    for (int i = 0; i < 3; ++i) report = step(self, ddp);
    if (self.world().rank() == 0) result.report = report;
  });
  return result;
}

TEST(SimulatedTraining, CommunicationIsHiddenButForTheLastBucket) {
  auto const trained = train(Topology::flat(4, kLink), sizes_alone());
  trained.outcome.rethrow();
  auto const& report = trained.report;
  EXPECT_DOUBLE_EQ(report.compute_ms, 40);
  ASSERT_EQ(report.buckets.size(), 10U);
  // 2 · 3/4 of 1 MB at 1 GB/s is 1.5 ms, steps and announcements some hundredths.
  EXPECT_NEAR(report.communication_ms, 15, 1.5);
  auto const last = report.buckets.back().finished_ms - report.buckets.back().started_ms;
  EXPECT_NEAR(report.exposed_ms, last, 1e-3);
  EXPECT_NEAR(report.step_ms, 40 + last, 1e-3);
  EXPECT_NEAR(report.hidden_of_hideable_percent(), 100, 0.1);
}

TEST(SimulatedTraining, WithoutOverlapNothingIs) {
  auto options = one_layer_a_bucket();
  options.overlap = false;
  auto const trained = train(Topology::flat(4, kLink), sizes_alone(), options);
  trained.outcome.rethrow();
  EXPECT_NEAR(trained.report.exposed_ms, trained.report.communication_ms, 1e-3);
  EXPECT_NEAR(trained.report.step_ms, 40 + trained.report.communication_ms, 1e-3);
}

TEST(SimulatedTraining, TheSameSeedIsTheSameRun) {
  Options options = sizes_alone();
  options.jitter = std::chrono::microseconds(200);
  options.shuffle = true;
  options.seed = 12;
  auto const first = train(Topology::flat(7, kLink), options);
  auto const second = train(Topology::flat(7, kLink), options);
  first.outcome.rethrow();
  EXPECT_EQ(first.outcome.fingerprint, second.outcome.fingerprint);
  EXPECT_EQ(first.outcome.elapsed, second.outcome.elapsed);
  EXPECT_EQ(first.report.exposed_ms, second.report.exposed_ms);
  options.seed = 13;
  EXPECT_NE(train(Topology::flat(7, kLink), options).outcome.fingerprint, first.outcome.fingerprint);
}

TEST(SimulatedTraining, AStragglerIsWaitedFor) {
  Options options = sizes_alone();
  options.stragglers = {{.rank = 2, .factor = 2}};
  auto const trained = train(Topology::flat(4, kLink), options);
  trained.outcome.rethrow();
  EXPECT_GT(trained.report.step_ms, 80);  // its computation's
  EXPECT_GT(trained.report.exposed_ms, 35);
}

TEST(SimulatedTraining, ALostRankEndsTheStepEverywhere) {
  Options options = sizes_alone();
  options.losses = {{.rank = 1, .at = milliseconds(70)}};
  auto const outcome = train(Topology::flat(4, kLink), options).outcome;
  for (int const rank : {0, 2, 3}) {
    ASSERT_TRUE(outcome.errors[static_cast<std::size_t>(rank)]);
    try {
      std::rethrow_exception(outcome.errors[static_cast<std::size_t>(rank)]);
    } catch (Error const& known) {
      EXPECT_EQ(known.code(), ErrorCode::peer_lost);
      EXPECT_NE(std::string(known.what()).find("rank 1 was lost"), std::string::npos) << known.what();
      EXPECT_NE(std::string(known.what()).find("bucket"), std::string::npos) << known.what();
    }
  }
}

TEST(SimulatedTraining, BucketsMayBePlannedForTheSimulatedLink) {
  auto options = one_layer_a_bucket();
  options.policy = BucketPolicy::optimal;
  // Communication takes longer than computation, so buckets have to be as large as latency asks and no larger.
  auto const slow = Topology::flat(8, {200e-6, 50e6});
  auto const planned = train(slow, sizes_alone(), options, 40, kElements / 4);
  planned.outcome.rethrow();
  auto const capped = train(slow, sizes_alone(), {}, 40, kElements / 4);
  EXPECT_LT(planned.report.step_ms, capped.report.step_ms);
}

TEST(SimulatedTraining, GradientsAreAveraged) {
  simulate_ranks(Topology::flat(3, kLink), {.shuffle = true, .spoil_buffers = true}, {}, [](SimulatedRank& self) {
    std::vector<float> weights(1000, static_cast<float>(self.world().rank()));
    DataParallel ddp(self.world(), {std::span(weights)});
    EXPECT_EQ(weights[5], 0);
    for (int i = 0; i < 3; ++i) {
      auto* const gradient = static_cast<float*>(ddp.gradient(0).data);
      std::fill(gradient, gradient + 1000, static_cast<float>(self.world().rank() + i));
      ddp.mark_ready(0);
      ddp.finish();
      EXPECT_EQ(static_cast<float*>(ddp.gradient(0).data)[999], static_cast<float>(i + 1));
    }
  }).rethrow();
}

TEST(SimulatedTraining, AZeroStepToo) {
  simulate_ranks(Topology::flat(4, kLink), {}, {}, [](SimulatedRank& self) {
    std::vector<float> weights(5000, 1);
    ZeroOptimizer zero(self.world(), {{{std::span(weights)}, SgdOptions{.lr = 0.5}}});
    for (int i = 0; i < 2; ++i) {
      auto* const gradient = static_cast<float*>(zero.gradient(0).data);
      std::fill(gradient, gradient + 5000, static_cast<float>(self.world().rank()));
      zero.mark_ready(0);
      zero.step();
    }
    zero.wait_parameters();
    EXPECT_FLOAT_EQ(static_cast<float*>(zero.parameter(0).data)[4999], 1 - 2 * 0.5F * 1.5F);
  }).rethrow();
}

TEST(SimulatedTraining, APlanIsMadeOfVirtualTimesAndKept) {
  std::vector<std::size_t> const sizes(6, 100'000);
  std::uint64_t fingerprint = 0;
  for (int run = 0; run < 2; ++run) {
    auto const outcome = simulate_ranks(Topology::flat(4, kLink), {}, {}, [&](SimulatedRank& self) {
      auto& world = self.world();
      test::SmallStep small(world.rank(), world.size(), sizes);
      for (auto& binding : small.bindings) {
        if (!binding.run) continue;
        binding.run = [&self, body = binding.run] {
          self.compute(milliseconds(1));
          body();
        };
      }
      PlanExecutor executor(world, small.graph, small.bindings,
                            {.cluster = test::slow_cluster(world.size()), .profile_steps = 2});
      small.executor = &executor;
      for (int step = 0; step < 6; ++step) small.step();
      EXPECT_TRUE(executor.is_measured());
      auto const begin = self.now();
      small.step();
      auto const took = std::chrono::duration<double>(self.now() - begin).count();
      // 18 ms of computation; six gradients of 0.6 ms, of which but the last are hidden.
      EXPECT_GE(took, 18e-3);
      EXPECT_NEAR(took, executor.plan().makespan_s, 0.02 * took);
      auto const wanted = small.reference(7);
      for (std::size_t layer = 0; layer < sizes.size(); ++layer) {
        EXPECT_NEAR(small.weights[layer][77], wanted[layer][77], 1e-3) << layer;
      }
    });
    outcome.rethrow();
    EXPECT_TRUE(run == 0 || outcome.fingerprint == fingerprint);
    fingerprint = outcome.fingerprint;
  }
}

TEST(SimulatedTraining, AThousandRanks) {
  auto const trained = train(Topology::flat(1024, kLink), sizes_alone(), one_layer_a_bucket(), 3);
  trained.outcome.rethrow();
  EXPECT_DOUBLE_EQ(trained.report.compute_ms, 12);
  EXPECT_GT(trained.report.hidden_ms, 3);
}

}  // namespace
}  // namespace weft::sim
