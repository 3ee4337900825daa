// Settings that change between steps, and no bit with them.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "sharding/fully_sharded_training.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"

namespace weft::test {
namespace {

BucketSettings random_buckets(std::mt19937_64& random, bool replans) {
  std::size_t const cap = std::size_t{1} << (random() % 18);
  bool const optimal = replans && random() % 4 == 0;
  return {{cap, 1 + random() % (2 * cap), 1 + random() % cap},
          optimal ? BucketPolicy::optimal : BucketPolicy::caps,
          random() % 3 != 0};
}

void expect_refused(ErrorCode code, char const* what, std::function<void()> const& call) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << what;
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

Training training_of(OptimizerOptions const& first, OptimizerOptions const& second) {
  return {.specs = model(17, 52), .first = first, .second = second, .steps = 8};
}

TEST(Reconfigure, KeepsTheBitsOfReplicas) {
  Training t = training_of(AdamWOptions{.lr = 0.01}, SgdOptions{.lr = 0.1, .momentum = 0.9});
  for (int const ranks : {1, 2, 3, 4}) {
    for (std::size_t const passes : {1U, 3U}) {
      t.passes = passes;
      run_thread_ranks(ranks, [&](Communicator& world) {
        auto const expected = train_replicated(world, t);
        std::mt19937_64 random(static_cast<std::uint64_t>(ranks) + passes);
        Parameters const parameters(t.specs);
        DataParallel ddp(world, parameters.views(), {.limits = {4000, 20000}, .stream = {}});
        Optimizer optimizer(parameters.groups(t.first, t.second), t.settings);
        for (std::size_t step = 0; step < t.steps; ++step) {
          auto const pass = [&](std::size_t number) {
            for (std::size_t const i : shuffled(t.specs.size(), 7)) {
              write_gradient(ddp.gradient(i), ddp.parameter(i), world.rank(), step * t.passes + number, i, number > 0);
              ddp.mark_ready(i);
            }
            ddp.finish();
          };
          for (std::size_t number = 0; number + 1 < t.passes; ++number) {
            ddp.no_sync([&] { pass(number); });
            ddp.bucketer().reconfigure(random_buckets(random, true));  // what has added up moves along
          }
          pass(t.passes - 1);
          std::vector<BufferView> gradients;
          if (random() % 2 == 0) ddp.bucketer().reconfigure(random_buckets(random, true));  // as do results
          for (std::size_t i = 0; i < t.specs.size(); ++i) gradients.push_back(ddp.gradient(i));
          optimizer.step(gradients);
        }
        EXPECT_EQ(bytes_of(t.specs.size(), [&](std::size_t i) { return ddp.parameter(i); }), expected)
            << ranks << " ranks, " << passes << " passes";
      });
    }
  }
}

void expect_zero_keeps_bits(Communicator& world, Training const& t, ZeroOptions options, std::uint64_t seed) {
  auto const expected = train_sharded(world, t, options);
  options.optimizer = t.settings;
  std::mt19937_64 random(seed);
  Parameters const parameters(t.specs);
  ZeroOptimizer zero(world, parameters.groups(t.first, t.second), options);
  parameters.poison();
  std::size_t moves = 0;
  for (std::size_t step = 0; step < t.steps; ++step) {
    std::size_t const generation = zero.generation();
    if (random() % 4 != 0) zero.reconfigure(random_buckets(random, false));
    if (zero.generation() != generation) ++moves;
    auto const pass = [&](std::size_t number) {
      zero.wait_parameters();
      for (std::size_t const i : shuffled(t.specs.size(), 7)) {
        write_gradient(zero.gradient(i), zero.parameter(i), world.rank(), step * t.passes + number, i, number > 0);
        zero.mark_ready(i);
      }
      bool const last = number + 1 == t.passes;
      bool const fixed = step > 0 || !options.buckets.rebuild;
      for (std::size_t i = 0; i < t.specs.size() && last && fixed; ++i) poison_others(zero, i);
      zero.step();
    };
    for (std::size_t number = 0; number + 1 < t.passes; ++number) zero.no_sync([&] { pass(number); });
    pass(t.passes - 1);
  }
  zero.wait_parameters();
  EXPECT_EQ(bytes_of(t.specs.size(), [&](std::size_t i) { return zero.parameter(i); }), expected) << "seed " << seed;
  EXPECT_EQ(zero.step_count(), static_cast<std::int64_t>(t.steps));
  EXPECT_GE(moves, 1U);
}

TEST(Reconfigure, KeepsTheBitsOfZero) {
  for (int const ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        Training t =
            training_of(AdamWOptions{.lr = 0.01, .amsgrad = seed % 2 == 0}, SgdOptions{.lr = 0.1, .momentum = 0.9});
        t.passes = 1 + seed % 2;
        ZeroOptions options{.stage = seed % 3 == 0 ? ZeroStage::optimizer_states : ZeroStage::gradients};
        options.buckets.limits = {4000, 20000};
        options.buckets.rebuild = seed % 2 == 0;
        expect_zero_keeps_bits(world, t, options, seed);
      }
    });
  }
}

TEST(Reconfigure, KeepsMastersOf16BitParameters) {
  Training t = training_of(AdamWOptions{.lr = 0.01}, AdamOptions{.lr = 0.02});
  for (TensorSpec& spec : t.specs) spec.dtype = DataType::bf16;
  run_thread_ranks(3, [&](Communicator& world) {
    for (std::uint64_t seed = 20; seed < 24; ++seed) {
      ZeroOptions options{.stage = seed % 2 == 0 ? ZeroStage::optimizer_states : ZeroStage::gradients};
      options.buckets.limits = {4000, 20000};
      expect_zero_keeps_bits(world, t, options, seed);
    }
  });
}

TEST(Reconfigure, RefusesBucketsThatWouldShowInTheBits) {
  run_thread_ranks(2, [](Communicator& world) {
    Training const t = training_of(AdamWOptions{.lr = 0.01}, AdamWOptions{.lr = 0.01});
    Parameters const parameters(t.specs);
    auto const expect = [&](ZeroOptions options, OptimizerOptions const& optimizer) {
      options.buckets.limits = {4000, 20000};
      ZeroOptimizer zero(world, parameters.groups(optimizer, optimizer), options);
      EXPECT_FALSE(zero.may_move_shards());
      BucketSettings settings = zero.bucket_settings();
      settings.overlap = false;
      zero.reconfigure(settings);
      EXPECT_EQ(zero.bucket_settings(), settings);
      settings.limits.bytes = 100;
      expect_refused(ErrorCode::unsupported, "shows in the bits", [&] { zero.reconfigure(settings); });
    };
    expect({}, LambOptions{.lr = 0.01});
    expect({.optimizer = {.state = StateType::block8}}, AdamWOptions{.lr = 0.01});
    ZeroOptions clipped;
    clipped.gradients.max_norm = 1.0;
    expect(clipped, AdamWOptions{.lr = 0.01});
  });
}

TEST(Reconfigure, IsForBetweenSteps) {
  run_thread_ranks(2, [](Communicator& world) {
    Training const t = training_of(AdamWOptions{.lr = 0.01}, AdamWOptions{.lr = 0.01});
    Parameters const parameters(t.specs);
    BucketSettings const other{{500, 500, 500}, BucketPolicy::caps, true};

    DataParallel ddp(world, parameters.views(), {.limits = {4000, 20000}, .stream = {}});
    expect_refused(ErrorCode::invalid_argument, "cap", [&] {
      ddp.bucketer().reconfigure({{1, 0, 1}, BucketPolicy::caps, true});
    });
    ddp.mark_ready(3);
    expect_refused(ErrorCode::invalid_argument, "middle of a step", [&] { ddp.bucketer().reconfigure(other); });
    ddp.finish_launching();
    expect_refused(ErrorCode::invalid_argument, "middle of a step", [&] { ddp.bucketer().reconfigure(other); });
    ddp.finish();
    ddp.bucketer().reconfigure(other);
    EXPECT_EQ(ddp.bucketer().settings(), other);
    ddp.join({}, [&] {
      expect_refused(ErrorCode::invalid_argument, "end_join", [&] { ddp.bucketer().reconfigure(other); });
    });

    ZeroOptimizer zero(world, parameters.groups(t.first, t.second), {});
    zero.mark_ready(3);
    expect_refused(ErrorCode::invalid_argument, "middle of a step", [&] { zero.reconfigure(other); });
    zero.reduce();
    expect_refused(ErrorCode::invalid_argument, "middle of a step", [&] { zero.reconfigure(other); });
    zero.step();
    zero.reconfigure(other);
    BucketSettings optimal = other;
    optimal.policy = BucketPolicy::optimal;
    expect_refused(ErrorCode::unsupported, "would move shards", [&] { zero.reconfigure(optimal); });

    FullySharded model(world, units_of(parameters, t, 4), {});
    model.before_forward(0);
    expect_refused(ErrorCode::invalid_argument, "is in use", [&] { model.reconfigure({.prefetch = 2}); });
    model.after_forward(0);
    expect_refused(ErrorCode::invalid_argument, "gather_cap", [&] { model.reconfigure({.gather_cap = 64}); });
    model.reconfigure({.prefetch = 2});
    EXPECT_EQ(model.gather_settings(), (GatherSettings{.prefetch = 2}));
  });
}

TEST(Reconfigure, RefusesOtherSettingsOnOtherRanks) {
  run_thread_ranks(3, [](Communicator& world) {
    Training const t = training_of(AdamWOptions{.lr = 0.01}, AdamWOptions{.lr = 0.01});
    Parameters const parameters(t.specs);
    bool const odd = world.rank() == 1;
    DataParallel ddp(world, parameters.views(), {.limits = {4000, 20000}, .stream = {}});
    BucketSettings const before = ddp.bucketer().settings();
    expect_refused(ErrorCode::mismatch, "settings.limits.bytes is 600 on rank 1 but 500 on rank 0", [&] {
      ddp.bucketer().reconfigure({{500, odd ? 600U : 500U, 500}, BucketPolicy::caps, true});
    });
    expect_refused(ErrorCode::mismatch, "settings.overlap is false on rank 1 but true on rank 0", [&] {
      ddp.bucketer().reconfigure({{500, 500, 500}, BucketPolicy::caps, !odd});
    });
    EXPECT_EQ(ddp.bucketer().settings(), before);
    ddp.finish();  // and goes on

    FullySharded model(world, units_of(parameters, t, 4), {});
    expect_refused(ErrorCode::mismatch, "prefetch (rank 0: 3, rank 1: 2)",
                   [&] { model.reconfigure({.prefetch = odd ? 2U : 3U}); });
    EXPECT_EQ(model.gather_settings(), GatherSettings{});
    run_pass(model, t, world.rank(), 0, 0);
    model.step();
  });
}

TEST(Reconfigure, KeepsTheBitsOfFullySharded) {
  for (int const ranks : {1, 2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        Training t{
            .specs = awkward(), .first = AdamWOptions{.lr = 0.01}, .second = LionOptions{.lr = 0.01}, .steps = 6};
        t.passes = 1 + seed % 2;
        FullyShardedOptions options;
        options.poison = seed % 3 != 0;
        options.shard_size = ranks == 4 && seed % 2 == 0 ? 2 : 0;
        auto const expected = train_fully_sharded(world, t, options);
        std::mt19937_64 random(seed);
        Parameters const parameters(t.specs);
        FullySharded model(world, units_of(parameters, t, 4), options);
        parameters.poison();
        auto const change = [&] {
          GatherSettings const settings{random() % 5, random() % 2 == 0 ? 0 : 24'000 + random() % 60'000,
                                        random() % 2 == 0};
          model.reconfigure(settings);
          EXPECT_EQ(model.gather_settings(), settings);
          EXPECT_EQ(model.memory().gathered, model.gathered_bytes_under(settings));
        };
        for (std::size_t step = 0; step < t.steps; ++step) {
          if (random() % 4 != 0) change();
          for (std::size_t number = 0; number + 1 < t.passes; ++number) {
            model.no_sync([&] { run_pass(model, t, world.rank(), step, number); });
            change();
          }
          run_pass(model, t, world.rank(), step, t.passes - 1);
          model.step();
        }
        change();
        EXPECT_EQ(gathered_bytes_of(model), expected) << ranks << " ranks, seed " << seed;
      }
    });
  }
}

// Without room for both everything stays, on every rank, and the training goes on.
TEST(Reconfigure, ChangesNothingWithoutMemory) {
  run_thread_ranks(2, [](Communicator& world) {
    Training t = training_of(AdamWOptions{.lr = 0.01}, AdamWOptions{.lr = 0.01});
    for (TensorSpec& spec : t.specs) spec.count = 20'000;
    auto const expected = train_sharded(world, t, {});
    Parameters const parameters(t.specs);
    constexpr std::size_t kBudget = std::size_t{16} << 20;
    MemoryAccount const account(kBudget);
    std::optional<MemoryAccount::Binding> bound;
    if (world.rank() == 1) bound.emplace(account);
    ZeroOptimizer zero(world, parameters.groups(t.first, t.second), {});
    for (std::size_t step = 0; step < t.steps; ++step) {
      zero.wait_parameters();
      for (std::size_t const i : shuffled(t.specs.size(), 7)) {
        write_gradient(zero.gradient(i), zero.parameter(i), world.rank(), step, i);
        zero.mark_ready(i);
      }
      zero.step();
      if (step == 0) continue;
      zero.wait_parameters();
      // Room for less than new gradients at first, at last for all but the states.
      std::optional<MemoryCharge> taken;
      if (world.rank() == 1) taken.emplace(MemoryKind::other, kBudget - account.total().live - step * 550'000);
      BucketSettings const before = zero.bucket_settings();
      expect_refused(ErrorCode::out_of_memory, "", [&] {
        zero.reconfigure({{1000 * step, 1000 * step, 1000}, BucketPolicy::caps, true});
      });
      EXPECT_EQ(zero.bucket_settings(), before);
    }
    zero.wait_parameters();
    EXPECT_EQ(bytes_of(t.specs.size(), [&](std::size_t i) { return zero.parameter(i); }), expected);
  });
}

}  // namespace
}  // namespace weft::test
