#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "sharding/zero_training.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

std::vector<TensorSpec> mixed_model() {
  std::vector<TensorSpec> specs = model(12, 61);
  for (std::size_t i = 0; i < specs.size(); i += 2) specs[i].dtype = DataType::bf16;
  return specs;
}

ZeroOptions fixed_shards(ZeroStage stage) {
  ZeroOptions options{.stage = stage};
  options.buckets.limits = {3000, 9000, 1000};
  options.buckets.rebuild = false;
  return options;
}

/// Whether `data` holds the view's bytes; an empty view may be of no address, which memcmp must not see.
bool same_bytes(void const* data, ConstBufferView view) {
  return view.count == 0 || std::memcmp(data, view.data, view.bytes()) == 0;
}

std::vector<std::byte> train(ZeroOptimizer& zero, int rank, std::size_t first, std::size_t last) {
  for (std::size_t step = first; step < last; ++step) {
    zero.wait_parameters();
    for (std::size_t i = 0; i < zero.parameter_count(); ++i) {
      write_gradient(zero.gradient(i), zero.parameter(i), rank, step, i);
      zero.mark_ready(i);
    }
    zero.step();
  }
  zero.wait_parameters();
  return bytes_of(zero.parameter_count(), [&](std::size_t i) { return zero.parameter(i); });
}

// Masters have bits that their 16-bit parameters do not: a run that lost them goes another way.
TEST(ZeroValues, WholeMastersAndStatesGoOnAtAnotherPlan) {
  std::vector<TensorSpec> const specs = mixed_model();
  for (int const ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      Parameters const parameters(specs);
      ZeroOptimizer straight(world, {{parameters.views(), AdamWOptions{}}}, {.stage = ZeroStage::gradients});
      train(straight, world.rank(), 0, 3);

      Parameters const others(specs, 2);
      ZeroOptimizer resumed(world, {{others.views(), AdamWOptions{}}}, fixed_shards(ZeroStage::optimizer_states));
      std::size_t beyond = 0;
      for (std::size_t i = 0; i < specs.size(); ++i) {
        std::vector<float> const master = straight.master(i);
        ASSERT_EQ(master.size(), specs[i].count);
        if (specs[i].dtype == DataType::bf16) {
          for (float const value : master) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof bits);
            beyond += (bits & 0xffffU) != 0 ? 1 : 0;
          }
        } else {
          EXPECT_TRUE(same_bytes(master.data(), straight.parameter(i)));
        }
        resumed.set_parameter(i, master);
        for (std::size_t which = 0; which < 2; ++which) resumed.set_state(i, which, straight.state(i, which));
      }
      EXPECT_GT(beyond, 100U);
      resumed.set_step_count(straight.step_count());
      for (std::size_t i = 0; i < specs.size(); ++i) {
        EXPECT_TRUE(same_bytes(resumed.parameter(i).data, straight.parameter(i)));
        EXPECT_EQ(resumed.master(i), straight.master(i));
      }
      auto const expected = train(straight, world.rank(), 3, 6);
      EXPECT_EQ(train(resumed, world.rank(), 3, 6), expected);
    });
  }
}

TEST(ZeroValues, ShardsCanBeTakenOutAndPutBackLocally) {
  std::vector<TensorSpec> const specs = mixed_model();
  for (int const ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      Parameters const parameters(specs);
      ZeroOptimizer straight(world, {{parameters.views(), AdamWOptions{}}}, fixed_shards(ZeroStage::gradients));
      train(straight, world.rank(), 0, 3);
      Parameters const others(specs, 2);
      ZeroOptimizer resumed(world, {{others.views(), AdamWOptions{}}}, fixed_shards(ZeroStage::gradients));
      for (std::size_t i = 0; i < specs.size(); ++i) {
        ASSERT_EQ(straight.master_shard(i).size(), straight.shard(i).count);
        resumed.set_master_shard(i, straight.master_shard(i));
        for (std::size_t which = 0; which < 2; ++which) {
          resumed.set_state_shard(i, which, straight.state_shard(i, which));
        }
        // A shard's values are the whole's.
        std::vector<float> const whole = straight.state(i, 1);
        std::vector<float> const mine = straight.state_shard(i, 1);
        EXPECT_TRUE(
            std::equal(mine.begin(), mine.end(), whole.begin() + static_cast<std::ptrdiff_t>(straight.shard(i).first)));
      }
      resumed.share_parameters();
      resumed.set_step_count(straight.step_count());
      auto const expected = train(straight, world.rank(), 3, 6);
      EXPECT_EQ(train(resumed, world.rank(), 3, 6), expected);
    });
  }
}

TEST(ZeroValues, WithoutMastersTheParameterItselfIsTaken) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<TensorSpec> const specs{{1000, DataType::bf16}, {300, DataType::f32}};
    Parameters const parameters(specs);
    ZeroOptions options = fixed_shards(ZeroStage::gradients);
    options.optimizer.master_weights = false;
    ZeroOptimizer zero(world, {{parameters.views(), SgdOptions{}}}, options);
    std::vector<float> const all = zero.master(0);
    auto const* const halves = static_cast<std::uint16_t const*>(zero.parameter(0).data);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &all[i], sizeof bits);
      ASSERT_EQ(bits, std::uint32_t{halves[i]} << 16U);
    }
    zero.set_master_shard(0, std::vector<float>(zero.shard(0).count, 1.5F + static_cast<float>(world.rank())));
    zero.share_parameters();
    zero.wait_parameters();
    EXPECT_EQ(zero.master(0).front(), 1.5F);
    EXPECT_EQ(zero.master(0).back(), 2.5F);
  });
}

// What ZeroOptimizer::`call` says when it is refused.
template <typename Call>
void expect_refused(std::string const& text, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected: " << text;
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what() << "\nexpected: " << text;
  }
}

// All of a parameter's states have one shape: without being told apart they would be mixed.
TEST(ZeroValues, RanksThatAskForOtherStatesAreTold) {
  run_thread_ranks(2, [](Communicator& world) {
    Parameters const parameters(std::vector<TensorSpec>(2, TensorSpec{100}));
    ZeroOptions options;
    options.buckets.rebuild = false;
    auto const expect_told = [&](std::string const& call, auto&& ask) {
      ZeroOptimizer zero(world, {{parameters.views(), AdamOptions{}}}, options);
      try {
        ask(zero);
        ADD_FAILURE() << "mixed";
      } catch (Error const& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch);
        EXPECT_NE(std::string(error.what()).find("ZeroOptimizer::" + call + ": call "), std::string::npos)
            << error.what();
      }
    };
    std::size_t const me = static_cast<std::size_t>(world.rank());
    std::string const number = std::to_string(me);
    expect_told("state(0, " + number + ")", [&](ZeroOptimizer& zero) { (void)zero.state(0, me); });
    expect_told("state(" + number + ", 1)", [&](ZeroOptimizer& zero) { (void)zero.state(me, 1); });
    expect_told("master(" + number + ")", [&](ZeroOptimizer& zero) { (void)zero.master(me); });
    expect_told(me == 0 ? "master(0)" : "state(0, 0)",
                [&](ZeroOptimizer& zero) { (void)(me == 0 ? zero.master(0) : zero.state(0, 0)); });
  });
}

TEST(ZeroValues, ShardsThatMayMoveAreNotTold) {
  run_thread_ranks(2, [](Communicator& world) {
    Parameters const parameters(mixed_model());
    ZeroOptimizer zero(world, {{parameters.views(), SgdOptions{}}});
    expect_refused("ZeroOptimizer::shard: shards may still move", [&] { (void)zero.shard(1); });
    expect_refused("ZeroOptimizer::parameter_shard: shards may", [&] { (void)zero.parameter_shard(1); });
    expect_refused("ZeroOptimizer::gradient_shard: shards may", [&] { (void)zero.gradient_shard(1); });
    zero.reduce();
    std::size_t const mine = zero.shard(1).count;
    EXPECT_EQ(zero.parameter_shard(1).count, mine);
    EXPECT_EQ(zero.gradient_shard(1).count, mine);
    expect_refused("ZeroOptimizer::shard: index 12 of 12", [&] { (void)zero.shard(12); });
    zero.step();
  });
}

TEST(ZeroValues, RefusesGroupsRatesAndCountsThatMakeNoSense) {
  run_thread_ranks(2, [](Communicator& world) {
    Parameters const parameters(mixed_model());
    ZeroOptimizer zero(world, {{parameters.views(), AdamWOptions{.lr = 0.25}}});
    for (bool const is_fixed : {false, true}) {
      if (is_fixed) zero.step();
      expect_refused("ZeroOptimizer::options: group 9 of 1", [&] { (void)zero.options(9); });
      expect_refused("ZeroOptimizer::set_lr: group 9 of 1", [&] { zero.set_lr(9, 0.1); });
      expect_refused("AdamW: lr is -5", [&] { zero.set_lr(-5); });
      expect_refused("AdamW: lr is nan", [&] { zero.set_lr(0, std::nan("")); });
      expect_refused("ZeroOptimizer::set_options: group 9 of 1", [&] { zero.set_options(9, AdamWOptions{}); });
      expect_refused("AdamW: beta1 is 2", [&] { zero.set_options(0, AdamWOptions{.beta1 = 2}); });
      expect_refused("ZeroOptimizer::set_options: group 0 is AdamW with 2 states, the options are SGD's with 0",
                     [&] { zero.set_options(0, SgdOptions{}); });
      expect_refused("ZeroOptimizer::set_options: group 0 is AdamW with 2 states, the options are AdamW's with 3",
                     [&] { zero.set_options(0, AdamWOptions{.amsgrad = true}); });
      expect_refused("ZeroOptimizer::set_step_count: -7 steps", [&] { zero.set_step_count(-7); });
      expect_refused("ZeroOptimizer::set_step_count: 9223372036854775807 steps",
                     [&] { zero.set_step_count(std::numeric_limits<std::int64_t>::max()); });
      EXPECT_EQ(lr_of(zero.options()), 0.25);
      EXPECT_EQ(zero.step_count(), is_fixed ? 1 : 0);
    }
  });
}

TEST(ZeroValues, RefusesWrongCountsAndShardsThatMayMove) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<TensorSpec> const specs = mixed_model();
    Parameters const parameters(specs);
    ZeroOptimizer early(world, {{parameters.views(), AdagradOptions{.initial_accumulator_value = 0.5}}});
    EXPECT_THROW((void)early.master_shard(0), Error);
    EXPECT_THROW((void)early.state_shard(0, 0), Error);
    EXPECT_THROW(early.set_parameter(0, std::vector<float>(specs[0].count)), Error);
    EXPECT_THROW(early.set_master_shard(0, {}), Error);
    EXPECT_EQ(early.state(1, 0), std::vector<float>(specs[1].count, 0.5F));
    EXPECT_EQ(early.master(1).size(), specs[1].count);

    ZeroOptimizer zero(world, {{parameters.views(), AdamWOptions{}}}, fixed_shards(ZeroStage::gradients));
    std::size_t const mine = zero.shard(0).count;
    EXPECT_THROW(zero.set_master_shard(0, std::vector<float>(mine + 1)), Error);
    EXPECT_THROW(zero.set_state_shard(0, 0, std::vector<float>(mine + 1)), Error);
    EXPECT_THROW(zero.set_state_shard(0, 2, std::vector<float>(mine)), Error);
    EXPECT_THROW((void)zero.state_shard(0, 2), Error);
    EXPECT_THROW(zero.set_parameter(0, std::vector<float>(specs[0].count + 1)), Error);
    EXPECT_THROW((void)zero.master(specs.size()), Error);
    EXPECT_THROW((void)zero.master_shard(specs.size()), Error);
  });
}

}  // namespace
}  // namespace weft::test
