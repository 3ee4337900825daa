#include "weft/fully_sharded.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "sharding/fully_sharded_training.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"

namespace weft::test {
namespace {

/// Options that must not change a bit, drawn at random.
FullyShardedOptions random_options(std::mt19937_64& random, int ranks) {
  FullyShardedOptions options;
  options.prefetch = random() % 5;
  options.reshard_after_forward = random() % 2 == 0;
  options.gradient_units = 1 + random() % 3;
  if (random() % 2 == 0) options.gather_cap = 24'000 + random() % 60'000;  // the largest unit is a bit less
  std::vector<int> divisors{0};
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size == 0) divisors.push_back(size);
  }
  options.shard_size = divisors[random() % divisors.size()];
  options.poison = random() % 4 != 0;
  return options;
}

std::string text_of(FullyShardedOptions const& o) {
  return "prefetch " + std::to_string(o.prefetch) + ", reshard " + std::to_string(o.reshard_after_forward) +
         ", gradient units " + std::to_string(o.gradient_units) + ", cap " + std::to_string(o.gather_cap) +
         ", shard size " + std::to_string(o.shard_size) + ", poison " + std::to_string(o.poison);
}

struct Kind {
  char const* name;
  OptimizerOptions first;
  OptimizerOptions second;
};

std::vector<Kind> elementwise() {
  return {{"AdamW", AdamWOptions{.lr = 0.01}, AdamWOptions{.lr = 0.02, .weight_decay = 0, .amsgrad = true}},
          {"Mixed", AdamOptions{.lr = 0.01, .weight_decay = 0.1}, SgdOptions{.lr = 0.1, .momentum = 0.9}},
          {"LionAndAdagrad", LionOptions{.lr = 0.01}, AdagradOptions{.lr = 0.1, .weight_decay = 0.1}}};
}

class FullyShardedBits : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Optimizers, FullyShardedBits, testing::ValuesIn(elementwise()),
                         [](auto const& kind) { return kind.param.name; });

TEST_P(FullyShardedBits, EqualReplicasWithAWholeOptimizerWhateverTheOptions) {
  for (int const ranks : {1, 2, 3, 4}) {
    for (std::size_t const passes : {1U, 3U}) {
      Training training{.specs = awkward(), .first = GetParam().first, .second = GetParam().second, .steps = 3};
      training.passes = passes;
      training.unused = passes == 1;
      run_thread_ranks(ranks, [&](Communicator& world) {
        auto const expected = train_replicated(world, training);
        std::mt19937_64 random(80 + static_cast<std::uint64_t>(ranks));
        for (int round = 0; round < 3; ++round) {
          FullyShardedOptions const options = random_options(random, ranks);
          std::size_t const largest = 1 + random() % 5;
          EXPECT_EQ(train_fully_sharded(world, training, options, largest), expected)
              << ranks << " ranks, passes " << passes << ", " << text_of(options) << ", up to " << largest
              << " tensors a unit";
        }
      });
    }
  }
}

TEST(FullyShardedHybrid, SumsByGroupAreWithinRounding) {
  Training const training{
      .specs = awkward(), .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1, .momentum = 0.9}};
  run_thread_ranks(6, [&](Communicator& world) {
    auto const expected = train_replicated(world, training);
    for (int const shard_size : {2, 3, 6}) {
      FullyShardedOptions options;
      options.shard_size = shard_size;
      options.hybrid_sum = HybridSum::by_group;
      options.poison = true;
      auto const got = train_fully_sharded(world, training, options);
      if (shard_size == 6) {
        EXPECT_EQ(got, expected);
      }
      expect_near(got, expected, 2e-6);
      std::vector<std::byte> first = got;
      world.broadcast(BufferView(first.data(), first.size(), DataType::u8), 0);
      EXPECT_EQ(got, first) << "replicas differ";
    }
  });
}

TEST(FullyShardedHybrid, EachRankKeepsItsPartOfAGroup) {
  run_thread_ranks(4, [](Communicator& world) {
    std::vector<TensorSpec> const specs{{4096}, {8192}};
    Parameters const parameters(specs);
    for (int const shard_size : {1, 2, 4}) {
      FullyShardedOptions options;
      options.shard_size = shard_size;
      FullySharded const model(world, {{"both", {{parameters.views(), AdamWOptions{}}}}}, options);
      std::size_t const part = (4096U + 8192U) / static_cast<unsigned>(shard_size);
      EXPECT_EQ(model.memory().parameter_shards, 4 * part);
      EXPECT_EQ(model.memory().gradient_shards, 4 * part);
      EXPECT_EQ(model.memory().optimizer, 8 * part);
      std::size_t owned = 0;
      for (std::size_t i = 0; i < 2; ++i) owned += model.shard(i).count;
      EXPECT_EQ(owned, part);
    }
  });
}

// One copy of the parameters, none of the gathered ones; a cap below every unit is no obstacle.
TEST(FullyShardedHybrid, ARankThatIsAGroupReadsItsParametersInPlace) {
  Training const t{.specs = awkward(), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1}};
  run_thread_ranks(2, [&](Communicator& world) {
    auto const expected = train_replicated(world, t);
    FullyShardedOptions const options{.gather_cap = 64, .shard_size = 1, .poison = true};
    EXPECT_EQ(train_fully_sharded(world, t, options), expected);

    MemoryAccount const account;
    MemoryAccount::Binding const bound(account);
    FullySharded model(world, {{"all", Parameters(t.specs).groups(t.first, t.second)}}, options);
    std::size_t const bytes = model.memory().parameter_shards;
    EXPECT_GE(account.usage(MemoryKind::parameters).live, bytes);
    EXPECT_LT(account.usage(MemoryKind::parameters).live, bytes + 4096);  // whole pages
    EXPECT_EQ(model.memory().gathered, 0U);
    run_pass(model, t, world.rank(), 0, 0);
    model.step();
    EXPECT_EQ(model.peak_gathered_bytes(), 0U);
    EXPECT_TRUE(model.gathers().empty());
    model.before_forward(0);
    for (std::size_t i = 0; i < t.specs.size(); ++i) EXPECT_EQ(model.parameter(i).data, model.parameter_shard(i).data);
    model.after_forward(0);
  });
}

TEST(FullySharded, LambsNormsAreOfWholeTensors) {
  Training const training{.specs = awkward(),
                          .first = LambOptions{.lr = 0.01, .weight_decay = 0.01},
                          .second = AdamWOptions{.lr = 0.01},
                          .steps = 6};
  for (int const ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      auto const expected = train_replicated(world, training);
      FullyShardedOptions options;
      options.poison = true;
      options.shard_size = ranks == 4 ? 2 : 0;
      auto const got = train_fully_sharded(world, training, options);
      expect_near(got, expected, 1e-6);
    });
  }
}

/// An empty sum becomes what is added, -0 included.
void add_to(std::vector<float>& sum, std::span<float const> values) {
  if (sum.empty()) return sum.assign(values.begin(), values.end());
  std::transform(sum.begin(), sum.end(), values.begin(), sum.begin(), std::plus<>());
}

// Every pass is reduced, and the averages are added: the reference does so one after the other.
TEST(FullySharded, AccumulatesWithSync) {
  Training const t{.specs = awkward(), .first = AdamWOptions{.lr = 0.01}, .second = LionOptions{.lr = 0.01}};
  constexpr std::size_t kPasses = 3;
  for (int const ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      Parameters const replica(t.specs);
      DataParallel ddp(world, replica.views());
      Optimizer optimizer(replica.groups(t.first, t.second));
      FullyShardedOptions options;
      options.poison = true;
      options.shard_size = ranks == 4 ? 2 : 0;
      Parameters const start(t.specs);
      FullySharded model(world, units_of(start, t, 3), options);
      for (std::size_t step = 0; step < 4; ++step) {
        std::vector<std::vector<float>> sums(t.specs.size());
        for (std::size_t pass = 0; pass < kPasses; ++pass) {
          for (std::size_t i = 0; i < t.specs.size(); ++i) {
            write_gradient(ddp.gradient(i), ddp.parameter(i), world.rank(), step * kPasses + pass, i);
            ddp.mark_ready(i);
          }
          ddp.finish();
          for (std::size_t i = 0; i < t.specs.size(); ++i) {
            add_to(sums[i], floats(ddp.gradient(i)));
          }
          Training numbered = t;
          numbered.passes = kPasses;
          run_pass(model, numbered, world.rank(), step, pass);
        }
        std::vector<BufferView> views;
        for (std::vector<float>& sum : sums) views.push_back(BufferView(std::span(sum)));
        optimizer.step(views);
        model.step();
      }
      EXPECT_EQ(gathered_bytes_of(model), bytes_of(t.specs.size(), [&](std::size_t i) { return ddp.parameter(i); }));
    });
  }
}

// Held, sent with what came on top, held and sent again before the step: what is on its way is not written over.
TEST(FullySharded, MayHoldAgainWhatIsBeingSent) {
  Training const t{.specs = awkward(), .first = SgdOptions{.lr = 0.1}, .second = AdamWOptions{.lr = 0.01}, .passes = 4};
  CommunicatorOptions slow;  // it is still being sent when the next pass begins
  slow.emulated_link = EmulatedLink::parse("3ms:1GB/s");
  auto const body = [&](Communicator& world) {
    Parameters const replica(t.specs);
    DataParallel ddp(world, replica.views());
    Optimizer optimizer(replica.groups(t.first, t.second));
    Parameters const start(t.specs);
    FullySharded model(world, {{"all", start.groups(t.first, t.second)}}, {.poison = true});
    for (std::size_t step = 0; step < 4; ++step) {
      std::vector<std::vector<float>> sums(t.specs.size());
      for (std::size_t pass = 0; pass < t.passes; ++pass) {
        auto const both = [&] {
          for (std::size_t i = 0; i < t.specs.size(); ++i) {
            write_gradient(ddp.gradient(i), ddp.parameter(i), world.rank(), step * t.passes + pass, i, pass % 2 == 1);
            ddp.mark_ready(i);
          }
          ddp.finish();
          run_pass(model, t, world.rank(), step, pass);
        };
        if (pass % 2 == 0) {
          ddp.no_sync([&] { model.no_sync(both); });
          continue;
        }
        both();
        for (std::size_t i = 0; i < t.specs.size(); ++i) {
          add_to(sums[i], floats(ddp.gradient(i)));
        }
      }
      std::vector<BufferView> views;
      for (std::vector<float>& sum : sums) views.push_back(BufferView(std::span(sum)));
      optimizer.step(views);
      model.step();
    }
    EXPECT_EQ(gathered_bytes_of(model), bytes_of(t.specs.size(), [&](std::size_t i) { return ddp.parameter(i); }));
  };
  run_thread_ranks(2, body, slow);
}

// Passes that all were local are sent by step() itself.
TEST(FullySharded, StepSendsWhatWasHeld) {
  Training const t{.specs = awkward(), .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}};
  run_thread_ranks(2, [&](Communicator& world) {
    auto const run = [&](bool held) {
      Parameters const start(t.specs);
      FullySharded model(world, units_of(start, t, 3), {.poison = true});
      for (std::size_t step = 0; step < 3; ++step) {
        auto const pass = [&] { run_pass(model, t, world.rank(), step, 0); };
        if (held) {
          EXPECT_EQ(model.memory().whole_gradients == 0, step == 0);
          model.no_sync([&] {
            pass();
            model.step();  // ends a micro-step
          });
          EXPECT_TRUE(model.holds_gradients(0));
        } else {
          pass();
        }
        model.step();
        EXPECT_FALSE(model.holds_gradients(0));
      }
      EXPECT_EQ(model.step_count(), 3);
      return gathered_bytes_of(model);
    };
    EXPECT_EQ(run(true), run(false));
  });
}

// An evaluation makes any number of gathers, and no step need follow.
TEST(FullySharded, KeepsTimesOfTheLastGathersOnly) {
  Training const t{.specs = {{3}, {5}}, .first = SgdOptions{}, .second = SgdOptions{}};
  run_thread_ranks(2, [&](Communicator& world) {
    Parameters const start(t.specs);
    FullySharded model(world, units_of(start, t, 1), {.prefetch = 0});
    ASSERT_EQ(model.unit_count(), 2U);
    for (std::size_t use = 0; use < 10'000; ++use) {
      std::size_t const unit = use % 2;
      model.before_forward(unit);
      model.after_forward(unit);
    }
    run_pass(model, t, world.rank(), 0, 0);
    model.step();
    EXPECT_GE(model.gathers().size(), 4096U);
    EXPECT_LE(model.gathers().size(), 8192U);
  });
}

TEST(FullySharded, StaysUnderTheCap) {
  Training const training{.specs = awkward(), .first = SgdOptions{.lr = 0.1}, .second = SgdOptions{.lr = 0.1}};
  run_thread_ranks(2, [&](Communicator& world) {
    Parameters const parameters(training.specs);
    std::vector<ShardedUnit> const units = units_of(parameters, training, 3);
    std::size_t largest = 0;
    for (std::size_t cap = 64; largest == 0; cap += 64) {  // the least cap that is accepted
      try {
        FullySharded const model(world, units, {.gather_cap = cap});
        largest = cap;
      } catch (Error const& error) {
        ASSERT_EQ(error.code(), ErrorCode::invalid_argument);
        ASSERT_NE(std::string(error.what()).find("unit 'unit "), std::string::npos) << error.what();
      }
    }
    for (bool const reshard : {true, false}) {
      for (std::size_t const cap : {largest, largest + 640, 2 * largest}) {
        FullySharded model(world, units,
                           {.prefetch = 3, .gather_cap = cap, .reshard_after_forward = reshard, .poison = true});
        EXPECT_EQ(model.memory().gathered, cap);
        for (std::size_t step = 0; step < 3; ++step) {
          run_pass(model, training, world.rank(), step, 0);
          model.step();
          EXPECT_LE(model.gathered_bytes(), cap);
        }
        EXPECT_LE(model.peak_gathered_bytes(), cap);
        EXPECT_GE(model.peak_gathered_bytes(), largest);
      }
    }
    FullySharded resharded(world, units, {.prefetch = 0});
    FullySharded kept(world, units, {.prefetch = 0, .reshard_after_forward = false});
    EXPECT_EQ(resharded.memory().gathered, largest);
    EXPECT_GT(kept.memory().gathered, largest);
  });
}

// Of recorded launches, not of speed: a unit's gather is launched before the one before it is used, and its reduction
// before the next one's backward begins.
TEST(FullySharded, LaunchesAheadOfUseAndBehindBackward) {
  run_thread_ranks(2, [](Communicator& world) {
    using Clock = std::chrono::steady_clock;
    std::vector<TensorSpec> const specs{{1000}, {2000}, {3000}, {4000}};
    Parameters const parameters(specs);
    std::vector<ShardedUnit> units;
    for (BufferView const& view : parameters.views())
      units.push_back({"unit " + std::to_string(units.size()), {{{view}, SgdOptions{}}}});
    FullySharded model(world, units);
    std::vector<Clock::time_point> forward;
    std::vector<Clock::time_point> backward(4);
    for (int step = 0; step < 2; ++step) {
      forward.clear();
      for (std::size_t unit = 0; unit < 4; ++unit) {
        model.before_forward(unit);
        forward.push_back(Clock::now());
        model.after_forward(unit);
      }
      for (std::size_t unit = 4; unit-- > 0;) {
        model.before_backward(unit);
        backward[unit] = Clock::now();
        std::memset(model.gradient(unit).data, 0, model.gradient(unit).bytes());
        model.after_backward(unit);
      }
      model.step();
    }
    // Units 0 1 2 3, of which 2 and 3 stay, then 1 0.
    auto const gathers = model.gathers();
    ASSERT_EQ(gathers.size(), 6U);
    std::vector<std::size_t> bytes;
    for (BucketTiming const& gather : gathers) bytes.push_back(gather.bytes / 4000);
    EXPECT_EQ(bytes, (std::vector<std::size_t>{1, 2, 3, 4, 2, 1}));
    for (std::size_t unit = 1; unit < 4; ++unit) EXPECT_LE(gathers[unit].ready, forward[unit - 1]);
    for (std::size_t unit = 0; unit < 2; ++unit) EXPECT_LE(gathers[5 - unit].ready, backward[unit + 1]);
    EXPECT_LE(gathers[0].ready, forward[0]);
    ASSERT_EQ(model.reductions().size(), 4U);
    for (std::size_t at = 0; at < 4; ++at) {
      BucketTiming const& reduction = model.reductions()[at];
      EXPECT_EQ(reduction.bytes / 4000, 4 - at);
      EXPECT_GE(reduction.finished, reduction.started);
      EXPECT_LE(reduction.ready, at < 3 ? backward[2 - at] : reduction.finished);
    }
    EXPECT_EQ(model.updates().size(), 4U);
  });
}

// A step with fewer passes than the one before: units are on their way for a pass that does not come.
TEST(FullySharded, StepMayComeEarlierThanBefore) {
  Training const t{.specs = awkward(), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1}};
  run_thread_ranks(3, [&](Communicator& world) {
    auto const run = [&](std::size_t prefetch) {
      Parameters const start(t.specs);
      FullySharded model(world, units_of(start, t, 2), {.prefetch = prefetch, .poison = true});
      std::size_t number = 0;
      for (std::size_t const passes : {3U, 1U, 2U, 1U, 1U}) {
        for (std::size_t pass = 0; pass < passes; ++pass) run_pass(model, t, world.rank(), number++, 0);
        model.step();
      }
      return gathered_bytes_of(model);
    };
    EXPECT_EQ(run(3), run(0));
  });
}

// Passes without backward between steps, units in another order, a unit left out: only the order of gathers changes.
TEST(FullySharded, AnyOrderOfUseHasTheSameBits) {
  Training const t{.specs = awkward(), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1}};
  run_thread_ranks(3, [&](Communicator& world) {
    auto const run = [&](bool in_order) {
      Parameters const start(t.specs);
      FullySharded model(world, units_of(start, t, 2), {.prefetch = 2, .poison = true});
      for (std::size_t step = 0; step < 5; ++step) {
        if (!in_order && step % 2 == 1) {
          for (std::size_t const unit : shuffled(model.unit_count(), step)) {  // evaluation
            model.before_forward(unit);
            model.after_forward(unit);
          }
        }
        std::size_t const left_out = step % model.unit_count();
        for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
          model.before_forward(unit);
          model.after_forward(unit);
        }
        std::vector<std::size_t> order = shuffled(model.unit_count(), in_order ? 1 : 100 + step);
        for (std::size_t const unit : order) {
          if (unit == left_out) continue;
          model.before_backward(unit);
          for (std::size_t const i : parameters_of(model, unit)) {
            write_gradient(model.gradient(i), model.parameter(i), world.rank(), step, i);
          }
          model.after_backward(unit);
        }
        model.step();
      }
      return gathered_bytes_of(model);
    };
    EXPECT_EQ(run(true), run(false));
  });
}

}  // namespace
}  // namespace weft::test
