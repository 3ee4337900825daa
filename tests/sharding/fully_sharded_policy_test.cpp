// Loss scales, overflows, norms and clipping within FullySharded's step.
#include <gtest/gtest.h>

#include <cmath>

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
