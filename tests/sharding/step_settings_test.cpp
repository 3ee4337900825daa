// Ranks that come to a step with other learning rates, step numbers, loss scales or inputs than the others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sharding/fully_sharded_training.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

/// What one rank brings to its second step, and no other.
struct Oddity {
  char const* name;
  std::string fact;
  std::string usual = "not given";
  std::string odd;
  std::function<void(ShardedOptimizer&)> set = [](ShardedOptimizer&) {};
  std::function<void(StepInputs&)> add = [](StepInputs&) {};
  GradScaler::State scale{.scale = 64, .growth_tracker = 1};
};

/// Whose addresses inputs hold.
constexpr float kEighth = 0.125F;
constexpr float kZero = 0;
constexpr std::int64_t kSeven = 7;

std::vector<Oddity> oddities(bool with_scaler, OptimizerOptions const& options) {
  std::vector<Oddity> all{
      {.name = "lr",
       .fact = "the learning rate of group 1",
       .usual = "0.5",
       .odd = "0.25",
       .set = [](ShardedOptimizer& one) { one.set_lr(1, 0.25); }},
      {.name = "steps",
       .fact = "the number of steps applied",
       .usual = "1",
       .odd = "7",
       .set = [](ShardedOptimizer& one) { one.set_step_count(7); }},
      {.name = "lr in memory", .fact = "inputs.lr", .odd = "0.125", .add = [](auto& in) { in.lr = &kEighth; }},
      {.name = "step in memory", .fact = "inputs.step", .odd = "7", .add = [](auto& in) { in.step = &kSeven; }},
      {.name = "limit", .fact = "inputs.clip_value", .odd = "2", .add = [](auto& in) { in.clip_value = 2; }},
  };
  std::vector<Oddity> const without_scaler{
      {.name = "clip", .fact = "inputs.clip", .odd = "0.125", .add = [](auto& in) { in.clip = &kEighth; }},
      {.name = "scale", .fact = "inputs.inv_scale", .odd = "0.125", .add = [](auto& in) { in.inv_scale = &kEighth; }},
      {.name = "found_inf", .fact = "inputs.found_inf", .odd = "0", .add = [](auto& in) { in.found_inf = &kZero; }},
  };
  std::vector<Oddity> const of_scaler{
      {.name = "scale",
       .fact = "the loss scale",
       .usual = "64",
       .odd = "32",
       .scale = {.scale = 32, .growth_tracker = 1}},
      {.name = "growth tracker",
       .fact = "the scaler's growth_tracker",
       .usual = "1",
       .odd = "0",
       .scale = {.scale = 64, .growth_tracker = 0}},
      {.name = "hysteresis",
       .fact = "the scaler's hysteresis_left",
       .usual = "1",
       .odd = "2",
       .scale = {.scale = 64, .growth_tracker = 1, .hysteresis_left = 2}},
  };
  if (std::holds_alternative<SgdOptions>(options)) {
    all.push_back(
        {.name = "weight_decay",
         .fact = "the options of group 1",
         .usual = "SGD lr 0.5 momentum 0 dampening 0 weight_decay 0 nesterov false maximize false",
         .odd = "SGD lr 0.5 momentum 0 dampening 0 weight_decay 0.5 nesterov false maximize false",
         .set = [](ShardedOptimizer& one) { one.set_options(1, SgdOptions{.lr = 0.5, .weight_decay = 0.5}); }});
  }
  auto const& more = with_scaler ? of_scaler : without_scaler;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Training three_groups(OptimizerOptions const& options) {
  return {.specs = model(6, 3), .first = options, .second = options};
}

/// What `call` throws: a mismatch, from then on always the same.
std::string mismatch_of(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

/// How ranks that ask each other are told that `odd_rank` is not as `peer` is.
std::string told(Oddity const& odd, int odd_rank, int peer) {
  bool const first_is_odd = odd_rank < peer;
  return fmt::format("rank {1} differs from rank {0}: {2} (rank {0}: {3}, rank {1}: {4})", std::min(odd_rank, peer),
                     std::max(odd_rank, peer), odd.fact, first_is_odd ? odd.odd : odd.usual,
                     first_is_odd ? odd.usual : odd.odd);
}

void expect_told(std::string const& what, std::string const& begin, std::string const& difference) {
  EXPECT_EQ(what.find(begin + ": " + difference), 0U) << what;
}

std::vector<std::byte> shards_of(ShardedOptimizer const& one) {
  return bytes_of(one.parameter_count(), [&](std::size_t i) { return one.parameter_shard(i); });
}

struct Way {
  char const* name;
  OptimizerOptions options = SgdOptions{.lr = 0.5};
  bool judged = false;
  bool reduce_first = false;
  bool overlap = true;
  int ranks = 2;
  int shard_size = 0;
  HybridSum hybrid_sum = HybridSum::rank_order;
  int odd_rank = 1;
};

StepInputs inputs_of(Oddity const& odd, bool is_odd) {
  StepInputs inputs;
  if (is_odd) odd.add(inputs);
  return inputs;
}

class ZeroSettings : public testing::TestWithParam<Way> {};

TEST_P(ZeroSettings, WhatDiffersIsNamedAndParametersStay) {
  Way const& way = GetParam();
  for (Oddity const& odd : oddities(way.judged, way.options)) {
    SCOPED_TRACE(odd.name);
    run_thread_ranks(way.ranks, [&](Communicator& world) {
      Training const t = three_groups(way.options);
      Parameters const start(t.specs);
      GradScaler scaler({.init_scale = 64});
      ZeroOptions options;
      options.buckets.limits = {4000, 4000};
      options.buckets.overlap = way.overlap;
      if (way.judged) options.gradients = {.scaler = &scaler, .max_norm = 1};
      ZeroOptimizer zero(world, start.groups(t.first, t.second), options);
      auto const backward = [&](std::size_t step) {
        for (std::size_t i = t.specs.size(); i-- > 0;) {
          zero.wait_parameter(i);
          write_gradient(zero.gradient(i), zero.parameter(i), world.rank(), step, i);
          zero.mark_ready(i);
        }
        if (way.reduce_first) zero.reduce();
      };
      backward(0);
      zero.step();
      scaler.update();
      zero.wait_parameters();
      ASSERT_GT(zero.plan().buckets.size(), 2U);
      bool const is_odd = world.rank() == 1;
      if (is_odd) odd.set(zero);
      if (is_odd && way.judged) scaler.set_state(odd.scale);
      auto const before = shards_of(zero);
      backward(1);
      std::string const what = mismatch_of([&] {
        zero.step(inputs_of(odd, is_odd));
        EXPECT_FALSE(way.judged || !way.overlap) << "the step itself was to notice";
        zero.set_lr(9);  // of a later step
        zero.wait_parameter(t.specs.size() - 1);
      });
      expect_told(what, "ZeroOptimizer::step", told(odd, 1, 0));
      if (way.judged) {
        EXPECT_EQ(shards_of(zero), before);
      }
      EXPECT_EQ(mismatch_of([&] { zero.step(); }), what);
      world.barrier();  // goes on
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ZeroSettings,
    testing::Values(Way{"Plain"}, Way{.name = "Three", .ranks = 3}, Way{.name = "WithoutOverlap", .overlap = false},
                    Way{.name = "Lamb", .options = LambOptions{.lr = 0.5}, .overlap = false},
                    Way{.name = "Judged", .judged = true},
                    Way{.name = "JudgedAfterReduce", .judged = true, .reduce_first = true},
                    Way{.name = "JudgedLamb", .options = LambOptions{.lr = 0.5}, .judged = true, .ranks = 4}),
    [](auto const& way) { return way.param.name; });

/// Which rank is compared with the odd one in what `rank` is told; none where they have no communicator in common.
std::optional<int> peer_of(Way const& way, int rank) {
  if (way.hybrid_sum == HybridSum::rank_order || way.shard_size == 1) return 0;
  if (rank == way.odd_rank) return way.odd_rank ^ 1;  // its shard group is asked first
  bool const shares_group = rank / way.shard_size == way.odd_rank / way.shard_size;
  bool const is_replica = rank % way.shard_size == way.odd_rank % way.shard_size;
  return shares_group || is_replica ? std::optional(rank) : std::nullopt;
}

class FullySettings : public testing::TestWithParam<Way> {};

TEST_P(FullySettings, WhatDiffersIsNamedByTheStep) {
  Way const& way = GetParam();
  for (Oddity const& odd : oddities(way.judged, way.options)) {
    SCOPED_TRACE(odd.name);
    run_thread_ranks(way.ranks, [&](Communicator& world) {
      Training const t = three_groups(way.options);
      GradScaler scaler({.init_scale = 64});
      FullyShardedOptions options{.shard_size = way.shard_size, .hybrid_sum = way.hybrid_sum};
      if (way.judged) options.gradients = {.scaler = &scaler, .max_norm = 1};
      FullySharded model(world, units_of(Parameters(t.specs), t, 2), options);
      run_pass(model, t, world.rank(), 0, 0);
      if (way.reduce_first) model.reduce();
      model.step();
      scaler.update();
      bool const is_odd = world.rank() == way.odd_rank;
      if (is_odd) odd.set(model);
      if (is_odd && way.judged) scaler.set_state(odd.scale);
      auto const before = shards_of(model);
      run_pass(model, t, world.rank(), 1, 0);
      if (way.reduce_first) model.reduce();
      std::optional<int> const peer = peer_of(way, world.rank());
      std::string const what = mismatch_of([&] {
        model.step(inputs_of(odd, is_odd));
        EXPECT_FALSE(peer) << "the step itself was to notice";
        run_pass(model, t, world.rank(), 2, 0);
        model.step();
      });
      if (peer) {
        expect_told(what, "FullySharded::step", told(odd, way.odd_rank, *peer));
      } else {  // by a neighbour that knows
        EXPECT_TRUE(what.find(told(odd, way.odd_rank, way.odd_rank ^ 1)) != std::string::npos ||
                    what.find(told(odd, way.odd_rank, way.odd_rank ^ 2)) != std::string::npos)
            << what;
      }
      // Without a policy units are updated while later gradients arrive, before the end of the step is announced to
      // all.
      EXPECT_EQ(shards_of(model) == before, way.judged);
      EXPECT_EQ(mismatch_of([&] { model.before_forward(0); }), what);
      world.barrier();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FullySettings,
    testing::Values(
        Way{"Plain"}, Way{.name = "Three", .ranks = 3}, Way{.name = "AfterReduce", .reduce_first = true},
        Way{.name = "Lamb", .options = LambOptions{.lr = 0.5}}, Way{.name = "Judged", .judged = true},
        Way{.name = "JudgedAfterReduce", .judged = true, .reduce_first = true},
        Way{.name = "Replicas", .judged = true, .shard_size = 1}, Way{.name = "Hybrid", .ranks = 4, .shard_size = 2},
        Way{.name = "HybridByGroup", .judged = true, .ranks = 4, .shard_size = 2, .hybrid_sum = HybridSum::by_group},
        Way{.name = "HybridByGroupUnjudged", .ranks = 4, .shard_size = 2, .hybrid_sum = HybridSum::by_group},
        Way{.name = "LastOfHybridByGroup",
            .judged = true,
            .ranks = 4,
            .shard_size = 2,
            .hybrid_sum = HybridSum::by_group,
            .odd_rank = 3},
        Way{.name = "LastOfHybridByGroupUnjudged",
            .ranks = 4,
            .shard_size = 2,
            .hybrid_sum = HybridSum::by_group,
            .odd_rank = 3},
        Way{.name = "ReplicasByGroup", .shard_size = 1, .hybrid_sum = HybridSum::by_group}),
    [](auto const& way) { return way.param.name; });

// Nothing follows that could throw: the log says of what kind the calls' tags are.
TEST(StepSettings, ARunThatEndsWithoutWaitingIsToldByTheLog) {
  testing::internal::CaptureStderr();
  run_thread_ranks(2, [](Communicator& world) {
    Parameters const start(model(3, 1));
    ZeroOptimizer zero(world, {{start.views(), SgdOptions{}}}, {});
    if (world.rank() == 1) zero.set_lr(0, 0.25);
    zero.step();
  });
  std::string const log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("its last parameters did not arrive: "), std::string::npos) << log;
  EXPECT_NE(log.find("step settings "), std::string::npos) << log;
  EXPECT_EQ(log.find(", tag "), std::string::npos) << log;
}

// Nobody can be asked then: both calls are named, and nobody waits.
TEST(StepSettings, ARankThatIsElsewhereIsNotWaitedFor) {
  run_thread_ranks(2, [](Communicator& world) {
    Parameters const start(model(3, 1));
    ZeroOptions options;
    options.gradients.max_norm = 1;
    ZeroOptimizer zero(world, {{start.views(), SgdOptions{}}}, options);
    zero.reduce();
    std::string const what = mismatch_of([&] {
      if (world.rank() == 0) zero.step();
      if (world.rank() == 1) world.barrier().wait();
    });
    EXPECT_NE(what.find("all_reduce(2 × f64, sum, "), std::string::npos) << what;
    EXPECT_NE(what.find("made barrier"), std::string::npos) << what;
    if (world.rank() == 0) {
      EXPECT_NE(what.find(", sum, step settings "), std::string::npos) << what;
    }
    world.barrier();
  });
}

template <typename Step>
void expect_forgotten_update(GradScaler& scaler, Step const& step) {
  step(0);
  try {
    step(1);
    ADD_FAILURE() << "accepted";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("the scaler has had no update() since the last step"), std::string::npos)
        << error.what();
  }
  scaler.update();
  step(2);  // the gradients are the ones of the step refused
}

TEST(StepSettings, AForgottenUpdateOfTheScalerIsRefused) {
  run_thread_ranks(2, [](Communicator& world) {
    Training const t = three_groups(SgdOptions{.lr = 0.1});
    Parameters const start(t.specs);
    GradScaler scaler;
    ZeroOptions options;
    options.gradients.scaler = &scaler;
    ZeroOptimizer zero(world, start.groups(t.first, t.second), options);
    expect_forgotten_update(scaler, [&](int /*step*/) { zero.step(); });
    EXPECT_EQ(zero.step_count(), 2);

    GradScaler other;
    FullySharded model(world, units_of(start, t, 2), {.gradients = {.scaler = &other}});
    expect_forgotten_update(other, [&](int step) {
      if (step < 2) run_pass(model, t, world.rank(), 0, 0);
      model.step();
    });
    EXPECT_EQ(model.step_count(), 2);
  });
}

// Shards are judged on the communication stream while the caller's thread may update the scale.
TEST(StepSettings, AnUpdateBeforeTheStepIsJudgedByTheNewScale) {
  run_thread_ranks(2, [](Communicator& world) {
    Training const t = three_groups(SgdOptions{.lr = 0.1});
    Parameters const start(t.specs);
    auto const norm_after = [&](int updates) {
      GradScaler scaler({.init_scale = 64, .growth_factor = 2, .growth_interval = 1});
      FullySharded model(world, units_of(start, t, 2), {.gradients = {.scaler = &scaler, .max_norm = 1e6}});
      run_pass(model, t, world.rank(), 0, 0);
      for (int i = 0; i < updates; ++i) scaler.update();
      model.step();
      return model.gradient_norm().norm;
    };
    double const norm = norm_after(0);
    EXPECT_GT(norm, 0);
    EXPECT_NEAR(norm_after(2), norm / 4, norm * 1e-6);
  });
}

}  // namespace
}  // namespace weft::test
