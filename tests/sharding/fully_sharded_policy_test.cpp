// Loss scales, overflows, norms and clipping within FullySharded's step.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/error_matchers.hpp"
#include "sharding/fully_sharded_training.hpp"
#include "weft/sharded_gradients.hpp"

namespace weft::test {
namespace {

TEST(FullyShardedPolicy, NormsAndClippingAreOfTheWholeModel) {
  for (int const shard_size : {2, 4}) {
    run_thread_ranks(4, [shard_size](Communicator& world) {
      Training const t{.specs = awkward(), .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}};
      Parameters const start(t.specs);
      auto const units = units_of(start, t, 3);
      FullySharded by_hand(world, units, {.shard_size = shard_size});
      FullySharded by_policy(world, units, {.shard_size = shard_size, .gradients = {.max_norm = 0.5}});
      for (std::size_t step = 0; step < 3; ++step) {
        run_pass(by_hand, t, world.rank(), step, 0);
        run_pass(by_policy, t, world.rank(), step, 0);
        by_hand.reduce();
        double square = 0;
        for (BufferView const& shard : by_hand.gradient_shards()) {
          for (float const value : floats(shard)) square += static_cast<double>(value) * value;
        }
        std::vector<double> sum{square};
        world.all_reduce(std::span<double>(sum), std::span<double>(sum), ReduceOp::sum);
        double const expected = std::sqrt(sum[0] * shard_size / 4);  // each shard is there 4 / shard_size times
        GradientNorm const norm = by_hand.measure_gradients();
        EXPECT_NEAR(norm.norm, expected, 1e-6 * expected);
        float const clip = clip_factor(norm.norm, 0.5);
        by_hand.step({.clip = &clip});
        by_policy.step();
        EXPECT_NEAR(by_policy.gradient_norm().norm, expected, 1e-6 * expected);
      }
      EXPECT_EQ(gathered_bytes_of(by_hand), gathered_bytes_of(by_policy));
    });
  }
}

// Unclipped shards of one model are clipped by hand, the other clips as it updates; both end as replicas do.
TEST(FullyShardedPolicy, ClipsByValueAsReplicasDo) {
  constexpr float kLimit = 0.04F;
  Training const t{.specs = awkward(), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1}, .steps = 4};
  for (bool const scales : {false, true}) {
    for (int const shard_size : {1, 2, 4}) {
      run_thread_ranks(4, [&](Communicator& world) {
        GradScaler scaler({.init_scale = 1});
        Parameters const start(t.specs);
        FullySharded by_hand(world, units_of(start, t, 3), {.shard_size = shard_size});
        FullySharded by_policy(
            world, units_of(start, t, 3),
            {.shard_size = shard_size, .gradients = {.scaler = scales ? &scaler : nullptr, .max_value = kLimit}});
        Parameters const replica(t.specs);
        DataParallel ddp(world, replica.views());
        Optimizer optimizer(replica.groups(t.first, t.second));
        for (std::size_t step = 0; step < t.steps; ++step) {
          run_pass(by_hand, t, world.rank(), step, 0);
          run_pass(by_policy, t, world.rank(), step, 0);
          for (std::size_t i = t.specs.size(); i-- > 0;) {
            write_gradient(ddp.gradient(i), ddp.parameter(i), world.rank(), step, i);
            ddp.mark_ready(i);
          }
          by_hand.reduce();
          float largest = 0;
          for (BufferView const& shard : by_hand.gradient_shards()) {
            for (float const value : floats(shard)) largest = std::max(largest, std::abs(value));
          }
          EXPECT_GT(largest, kLimit);
          clip_grad_value(by_hand.gradient_shards(), kLimit);
          by_hand.step();
          by_policy.step();
          scaler.update();
          ddp.finish_and_update(optimizer, {.clip_value = kLimit});
        }
        auto const expected = bytes_of(t.specs.size(), [&](std::size_t i) { return ddp.parameter(i); });
        EXPECT_EQ(gathered_bytes_of(by_hand), expected);
        EXPECT_EQ(gathered_bytes_of(by_policy), expected);
        float const one = 1;
        run_pass(by_policy, t, world.rank(), t.steps, 0);
        expect_error(ErrorCode::invalid_argument, {"clip_value"}, [&] { by_policy.step({.clip_value = one}); });
        by_policy.step();
      });
    }
  }
  run_thread_ranks(2, [&](Communicator& world) {
    Parameters const start(t.specs);
    GradientPolicy const policy{.max_value = 1.0F + static_cast<float>(world.rank())};
    expect_error(ErrorCode::mismatch, {"gradients.max_value", "rank 1: 2"},
                 [&] { FullySharded(world, units_of(start, t, 3), {.gradients = policy}); });
  });
}

TEST(FullyShardedPolicy, AnOverflowAnywhereSkipsTheStepEverywhere) {
  run_thread_ranks(4, [](Communicator& world) {
    Training const t{.specs = awkward(), .first = AdamWOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}};
    Parameters const start(t.specs);
    GradScaler scaler({.init_scale = 1});
    FullySharded model(world, units_of(start, t, 3), {.shard_size = 2, .gradients = {.scaler = &scaler}});
    auto const before = gathered_bytes_of(model);
    for (std::size_t step = 0; step < 3; ++step) {
      run_pass(model, t, world.rank(), step, 0);
      if (step == 0) {  // a gradient
        model.reduce();
        auto const shards = model.gradient_shards();
        if (world.rank() >= 2 && world.rank() % 2 == 1) floats(shards.back()).back() = INFINITY;
        if (world.rank() == 1) floats(shards.back()).back() = INFINITY;  // its replica has the same
      }
      if (step == 1 && world.rank() == 2) scaler.found_inf() = 1;  // what only one rank was told
      model.step();
      EXPECT_EQ(scaler.found_inf() != 0, step < 2) << "rank " << world.rank() << " step " << step;
      scaler.update();
      if (step < 2) {
        EXPECT_EQ(model.step_count(), 0);
        EXPECT_EQ(gathered_bytes_of(model), before);
      }
    }
    EXPECT_EQ(model.step_count(), 1);
    EXPECT_NE(gathered_bytes_of(model), before);
  });
}

// What step() goes by is what was seen right behind each reduction: a shard that changes later is not looked at again.
TEST(FullyShardedPolicy, ShardsAreJudgedBeforeTheStep) {
  Training const t{.specs = awkward(), .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}};
  for (int const shard_size : {1, 2}) {
    run_thread_ranks(2, [&](Communicator& world) {
      Parameters const start(t.specs);
      Stream reductions = Stream::cpu();
      FullySharded model(
          world, units_of(start, t, 3),
          {.shard_size = shard_size, .gradients = {.max_norm = 0.5}, .gather_stream = {}, .reduce_stream = reductions});
      run_pass(model, t, world.rank(), 0, 0);
      reductions.synchronize();
      std::vector<BufferView> const shards = model.gradient_shards();
      double const square = std::pow(gradient_norm(world, shards).norm, 2);
      for (BufferView const& shard : shards) floats(shard).front() = INFINITY;
      model.step();
      double const expected = std::sqrt(square * shard_size / 2);  // each shard is there 2 / shard_size times
      EXPECT_TRUE(model.gradient_norm().finite);
      EXPECT_NEAR(model.gradient_norm().norm, expected, 1e-6 * expected);
    });
  }
}

// Of passes that are each reduced the last one's shard is judged, which is the sum of all.
TEST(FullyShardedPolicy, SumsOfSeveralPassesAreJudgedOnce) {
  Training const t{.specs = awkward(), .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}};
  run_thread_ranks(2, [&](Communicator& world) {
    auto const start_model = [&](GradientPolicy const& policy) {
      return FullySharded(world, units_of(Parameters(t.specs), t, 3), {.gradients = policy});
    };
    FullySharded judged = start_model({.max_norm = 0.5});
    FullySharded measured = start_model({});
    for (std::size_t step = 0; step < 2; ++step) {
      for (std::size_t pass = 0; pass < 3; ++pass) {
        run_pass(judged, t, world.rank(), 3 * step + pass, 0);
        run_pass(measured, t, world.rank(), 3 * step + pass, 0);
      }
      measured.reduce();
      GradientNorm const expected = measured.measure_gradients();
      float const clip = clip_factor(expected.norm, 0.5);
      measured.step({.clip = &clip});
      judged.step();
      EXPECT_EQ(judged.gradient_norm().norm, expected.norm);
    }
    EXPECT_EQ(gathered_bytes_of(judged), gathered_bytes_of(measured));
  });
}

}  // namespace
}  // namespace weft::test
