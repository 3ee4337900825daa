#include <gtest/gtest.h>

#include "sharding/fully_sharded_training.hpp"
#include "weft/convert.hpp"
#include "weft/error.hpp"

// What checkpoints take out and put back.

namespace weft::test {
namespace {

Training training_of_two(std::uint64_t seed) {
  return {.specs = model(9, seed),
          .first = AdamWOptions{.lr = 0.01},
          .second = SgdOptions{.lr = 0.1, .momentum = 0.9},
          .steps = 6};
}

void train(FullySharded& model, Training const& t, int rank, std::size_t first, std::size_t last) {
  for (std::size_t step = first; step < last; ++step) {
    run_pass(model, t, rank, step, 0);
    model.step();
  }
}

struct Saved {
  std::vector<std::vector<float>> masters;
  std::vector<std::vector<std::vector<float>>> states;  ///< by parameter
  std::int64_t steps = 0;
};

Saved save(FullySharded& model) {
  Saved saved;
  saved.steps = model.step_count();
  for (std::size_t i = 0; i < model.parameter_count(); ++i) {
    saved.masters.push_back(model.master(i));
    saved.states.emplace_back();
    for (std::size_t s = 0; s < model.state_names(i).size(); ++s) saved.states.back().push_back(model.state(i, s));
  }
  return saved;
}

TEST(FullyShardedValues, ContinueInAnotherShape) {
  Training const t = training_of_two(66);
  for (bool const narrow : {false, true}) {
    run_thread_ranks(4, [&](Communicator& world) {
      Parameters const start(t.specs);
      FullyShardedOptions options;
      options.poison = true;
      if (narrow) options.parameter_type = DataType::bf16;
      if (narrow) options.gradient_type = DataType::f32;
      FullySharded straight(world, units_of(start, t, 3), options);
      // Gradients of a narrow parameter are noise only.
      auto const run = [&](FullySharded& model, std::size_t first, std::size_t last) {
        if (!narrow) return train(model, t, world.rank(), first, last);
        for (std::size_t step = first; step < last; ++step) {
          for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
            model.before_forward(unit);
            model.after_forward(unit);
            model.before_backward(unit);
            for (std::size_t const i : parameters_of(model, unit)) {
              for (std::size_t e = 0; e < model.gradient(i).count; ++e) {
                floats(model.gradient(i))[e] = gradient_value(world.rank(), step, i, e);
              }
            }
            model.after_backward(unit);
          }
          model.step();
        }
      };
      run(straight, 0, 3);
      Saved const saved = save(straight);
      run(straight, 3, 6);

      options.shard_size = 2;
      options.prefetch = 3;
      Parameters const other(t.specs, 99);
      FullySharded resumed(world, units_of(other, t, 5), options);
      run(resumed, 0, 1);  // whatever it was
      for (std::size_t i = 0; i < resumed.parameter_count(); ++i) {
        resumed.set_parameter(i, saved.masters[i]);
        for (std::size_t s = 0; s < saved.states[i].size(); ++s) resumed.set_state(i, s, saved.states[i][s]);
      }
      resumed.set_step_count(saved.steps);
      run(resumed, 3, 6);
      EXPECT_EQ(gathered_bytes_of(resumed), gathered_bytes_of(straight));
      EXPECT_EQ(resumed.step_count(), 6);
    });
  }
}

TEST(FullyShardedValues, ShardsAreRangesOfTheWhole) {
  Training const t = training_of_two(67);
  run_thread_ranks(3, [&](Communicator& world) {
    Parameters const start(t.specs);
    FullySharded model(world, units_of(start, t, 3));
    train(model, t, world.rank(), 0, 2);
    for (std::size_t i = 0; i < model.parameter_count(); ++i) {
      ShardRange const mine = model.shard(i);
      auto const part = [&](std::vector<float> const& whole) {
        auto const first = whole.begin() + static_cast<std::ptrdiff_t>(mine.first);
        return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(mine.count));
      };
      std::vector<float> const master = model.master(i);
      EXPECT_EQ(master.size(), t.specs[i].count);
      EXPECT_EQ(model.master_shard(i), part(master));
      ASSERT_EQ(model.parameter_shard(i).count, mine.count);
      std::span<float const> const values = floats(model.parameter_shard(i));
      EXPECT_EQ(std::vector<float>(values.begin(), values.end()), model.master_shard(i));
      for (std::size_t s = 0; s < model.state_names(i).size(); ++s) {
        EXPECT_EQ(model.state_shard(i, s), part(model.state(i, s)));
      }
      std::vector<std::uint64_t> owned{mine.count};
      world.all_reduce(std::span<std::uint64_t>(owned), std::span<std::uint64_t>(owned), ReduceOp::sum);
      EXPECT_EQ(owned[0], t.specs[i].count);
    }
    // Set shard by shard, and shared.
    for (std::size_t i = 0; i < model.parameter_count(); ++i) {
      model.set_master_shard(i, std::vector<float>(model.shard(i).count, static_cast<float>(i) + 0.5F));
      for (std::size_t s = 0; s < model.state_names(i).size(); ++s) {
        model.set_state_shard(i, s, std::vector<float>(model.shard(i).count, 2.0F));
      }
    }
    model.share_parameters();
    for (std::size_t i = 0; i < model.parameter_count(); ++i) {
      EXPECT_EQ(model.master(i), std::vector<float>(t.specs[i].count, static_cast<float>(i) + 0.5F));
      for (std::size_t s = 0; s < model.state_names(i).size(); ++s) {
        EXPECT_EQ(model.state(i, s), std::vector<float>(t.specs[i].count, 2.0F));
      }
      model.before_forward(model.unit_of(i));
      for (float const value : floats(model.parameter(i))) ASSERT_EQ(value, static_cast<float>(i) + 0.5F);
      model.after_forward(model.unit_of(i));
    }
    EXPECT_THROW(model.set_master_shard(0, std::vector<float>(model.shard(0).count + 1)), Error);
  });
}

TEST(FullyShardedValues, MastersStartUnrounded) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<TensorSpec> const specs{{1000}, {77}};
    Parameters const start(specs, 5 + static_cast<std::uint64_t>(world.rank()));  // rank 0's count
    Parameters const expected(specs, 5);
    FullySharded model(world, {{"all", {{start.views(), AdamWOptions{}}}}}, {.parameter_type = DataType::bf16});
    for (std::size_t i = 0; i < 2; ++i) {
      std::span<float const> const values = floats(expected.views()[i]);
      EXPECT_EQ(model.master(i), std::vector<float>(values.begin(), values.end()));
    }
  });
}

TEST(FullyShardedValues, FirstValuesMayBeMadeOneByOne) {
  run_thread_ranks(3, [](Communicator& world) {
    std::vector<TensorSpec> const specs{{700'000}, {0}, {77, DataType::bf16}};  // the first takes several messages
    Parameters const expected(specs, 5);
    std::vector<BufferView> empty;
    for (TensorSpec const& spec : specs) empty.push_back({nullptr, spec.count, spec.dtype});
    std::vector<std::size_t> calls;
    FullyShardedOptions options;
    options.first_values = [&](std::size_t index, BufferView const& values) {
      calls.push_back(index);
      ASSERT_EQ(values.count, specs[index].count);
      ASSERT_EQ(values.dtype, specs[index].dtype);
      std::memcpy(values.data, expected.views()[index].data, values.bytes());
    };
    FullySharded model(world, {{"all", {{empty, AdamWOptions{}}}}}, options);
    EXPECT_EQ(calls, world.rank() == 0 ? (std::vector<std::size_t>{0, 2}) : std::vector<std::size_t>{});
    model.before_forward(0);
    EXPECT_EQ(bytes_of(3, [&](std::size_t i) { return model.parameter(i); }),
              bytes_of(3, [&](std::size_t i) { return expected.views()[i]; }));
    model.after_forward(0);
  });
}

TEST(FullyShardedValues, StatesAreDividedAmongRanks) {
  for (int const ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      std::vector<TensorSpec> specs;
      for (std::size_t i = 0; i < 20; ++i) specs.push_back({10007 + i});
      Training const t{.specs = specs, .first = AdamWOptions{}, .second = AdamWOptions{}};
      Parameters const start(specs);
      Optimizer const whole(start.views(), AdamWOptions{});
      FullySharded const model(world, units_of(start, t, 4));
      std::vector<std::uint64_t> sum{model.state_bytes()};
      double const share = static_cast<double>(whole.state_bytes()) / ranks;
      EXPECT_LT(std::abs(static_cast<double>(model.state_bytes()) - share), 0.02 * share);
      world.all_reduce(std::span<std::uint64_t>(sum), std::span<std::uint64_t>(sum), ReduceOp::sum);
      EXPECT_EQ(sum[0], whole.state_bytes());  // nothing is kept twice
      double const bytes = 4.0 * 20 * 10007 / ranks;
      EXPECT_NEAR(static_cast<double>(model.memory().parameter_shards), bytes, 0.02 * bytes);
      EXPECT_NEAR(static_cast<double>(model.memory().gradient_shards), bytes, 0.02 * bytes);
    });
  }
}

}  // namespace
}  // namespace weft::test
