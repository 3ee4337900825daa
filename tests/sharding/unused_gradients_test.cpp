// Parameters without a gradient where results are sharded, against a serial run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/error_matchers.hpp"
#include "sharding/fully_sharded_training.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kTensors = 12;
constexpr std::size_t kSteps = 4;
constexpr std::size_t kPerUnit = 3;

struct Schedule {
  UnusedGradients unused = UnusedGradients::find;
  std::size_t passes = 1;
  bool judged = false;  ///< by a policy that changes nothing
  OptimizerOptions first = AdamWOptions{.lr = 0.01};
  OptimizerOptions second = SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1};

  [[nodiscard]] GradientPolicy policy() const { return judged ? GradientPolicy{.max_norm = 1e9} : GradientPolicy{}; }
};

std::vector<TensorSpec> specs() {
  std::vector<TensorSpec> all;
  for (std::size_t i = 0; i < kTensors; ++i) all.push_back({i == 4 ? 0 : 1 + 97 * i});
  return all;
}

/// Any rank can tell for any other. Every sixth tensor is used by nobody, nor is a unit in some steps.
bool is_used(Schedule const& run, int rank, std::size_t step, std::size_t pass, std::size_t tensor) {
  bool const fixed = run.unused == UnusedGradients::fixed;
  if (tensor % 6 == 5) return false;
  std::size_t const turn = fixed ? 0 : 2 * step + pass;
  if (!fixed && tensor / kPerUnit == 1 + step % 3) return false;
  return (tensor + static_cast<std::size_t>(rank) + turn) % 3 == 0;
}

bool is_used_anywhere(Schedule const& run, int ranks, std::size_t step, std::size_t pass, std::size_t tensor) {
  bool used = false;
  for (int rank = 0; rank < ranks; ++rank) used = used || is_used(run, rank, step, pass, tensor);
  return used;
}

/// Of values whose sums over any ranks and passes are exact.
float gradient_at(int rank, std::size_t step, std::size_t pass, std::size_t tensor, std::size_t element) {
  std::size_t const mixed = element * 7 + tensor * 13 + step * 5 + pass * 3 + static_cast<std::size_t>(rank) * 11;
  return (static_cast<float>(mixed % 61) - 30) / 16;
}

using Values = std::vector<std::vector<float>>;

void expect_same(Values const& got, Values const& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    for (std::size_t e = 0; e < got[i].size(); ++e) {
      ASSERT_NEAR(got[i][e], expected[i][e], tolerance * std::max(1.0F, std::abs(expected[i][e])))
          << "value " << i << " at " << e;
    }
  }
}

/// All masters and states. Only what some rank has a gradient of is updated, or, by default, all.
Values train_serially(Schedule const& run, int ranks) {
  Parameters const parameters(specs());
  Optimizer optimizer(parameters.groups(run.first, run.second));
  for (std::size_t step = 0; step < kSteps; ++step) {
    optimizer.begin_step();
    for (std::size_t i = 0; i < kTensors; ++i) {
      std::vector<float> average(specs()[i].count, 0);
      bool any = false;
      for (int rank = 0; rank < ranks; ++rank) {
        for (std::size_t pass = 0; pass < run.passes; ++pass) {
          if (!is_used(run, rank, step, pass, i)) continue;
          any = true;
          for (std::size_t e = 0; e < average.size(); ++e) {
            average[e] += gradient_at(rank, step, pass, i, e) / static_cast<float>(ranks);
          }
        }
      }
      if (any || run.unused == UnusedGradients::zero) optimizer.update(i, std::span<float>(average));
    }
  }
  Values values;
  for (std::size_t i = 0; i < kTensors; ++i) {
    std::span<float const> const master = floats(optimizer.master(i));
    values.emplace_back(master.begin(), master.end());
    for (std::size_t which = 0; which < optimizer.state_names(i).size(); ++which) {
      values.push_back(optimizer.state(i, which));
    }
  }
  return values;
}

template <typename Strategy>
Values values_of(Strategy& strategy) {
  Values values;
  for (std::size_t i = 0; i < kTensors; ++i) {
    values.push_back(strategy.master(i));
    for (std::size_t which = 0; which < strategy.state_names(i).size(); ++which) {
      values.push_back(strategy.state(i, which));
    }
  }
  return values;
}

template <typename Strategy>
void check_has_gradient(Strategy const& strategy, Schedule const& run, int ranks, std::size_t step) {
  for (std::size_t i = 0; i < kTensors; ++i) {
    bool any = run.unused == UnusedGradients::zero;
    for (std::size_t pass = 0; pass < run.passes; ++pass) any = any || is_used_anywhere(run, ranks, step, pass, i);
    ASSERT_EQ(strategy.has_gradient(i), any) << "step " << step << " parameter " << i;
  }
}

void write(BufferView const& to, int rank, std::size_t step, std::size_t pass, std::size_t tensor, bool add) {
  std::span<float> const out = floats(to);
  for (std::size_t e = 0; e < out.size(); ++e) {
    out[e] = (add ? out[e] : 0.0F) + gradient_at(rank, step, pass, tensor, e);
  }
}

Values train_zero(Communicator& world, Schedule const& run, ZeroStage stage, bool tell) {
  Parameters const start(specs());
  ZeroOptimizer zero(world, start.groups(run.first, run.second),
                     {.stage = stage,
                      .buckets = {.limits = {1000, 3000}, .stream = {}, .unused = run.unused},
                      .gradients = run.policy()});
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<char> written(kTensors);
    auto const pass = [&](std::size_t number) {
      for (std::size_t const i : shuffled(kTensors, step + number)) {
        if (is_used(run, world.rank(), step, number, i)) {
          write(zero.gradient(i), world.rank(), step, number, i, written[i] != 0);
          written[i] = 1;
          zero.mark_ready(i);
        } else if (tell) {
          zero.mark_unused(i);
        }
      }
      zero.step();
    };
    for (std::size_t number = 0; number + 1 < run.passes; ++number) zero.no_sync([&] { pass(number); });
    pass(run.passes - 1);
    check_has_gradient(zero, run, world.size(), step);
  }
  return values_of(zero);
}

std::vector<ShardedUnit> units(Parameters const& start, Schedule const& run) {
  std::vector<ShardedUnit> all;
  for (std::size_t i = 0; i < kTensors; ++i) {
    if (i % kPerUnit == 0)
      all.push_back({"unit " + std::to_string(all.size()), {{{}, i < 6 ? run.first : run.second}}});
    all.back().groups.back().parameters.push_back(start.views()[i]);
  }
  return all;
}

/// A unit of which nobody uses anything has no backward.
void backward(FullySharded& model, Schedule const& run, Communicator const& world, std::size_t step,
              std::size_t number) {
  for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
    model.before_forward(unit);
    model.after_forward(unit);
  }
  for (std::size_t unit = model.unit_count(); unit-- > 0;) {
    bool any = false;
    for (std::size_t const i : parameters_of(model, unit)) {
      any = any || is_used_anywhere(run, world.size(), step, number, i);
    }
    if (!any) continue;
    model.before_backward(unit);
    for (std::size_t const i : parameters_of(model, unit)) {
      if (is_used(run, world.rank(), step, number, i)) {
        write(model.gradient(i), world.rank(), step, number, i, model.holds_gradients(unit));
      } else {
        model.mark_unused(i);
      }
    }
    model.after_backward(unit);
  }
}

Values train_fully_sharded(Communicator& world, Schedule const& run, FullyShardedOptions options) {
  options.unused = run.unused;
  options.gradients = run.policy();
  options.poison = true;
  FullySharded model(world, units(Parameters(specs()), run), options);
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (std::size_t number = 0; number + 1 < run.passes; ++number) {
      model.no_sync([&] { backward(model, run, world, step, number); });
    }
    backward(model, run, world, step, run.passes - 1);
    model.step();
    check_has_gradient(model, run, world.size(), step);
  }
  return values_of(model);
}

class UnusedSharded : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, UnusedSharded, testing::Values(2, 4), testing::PrintToStringParamName());

TEST_P(UnusedSharded, ZeroUpdatesWhatSomeRankHas) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    for (UnusedGradients const unused : {UnusedGradients::zero, UnusedGradients::find, UnusedGradients::fixed}) {
      for (std::size_t const passes : {1U, 2U}) {
        Schedule const run{.unused = unused, .passes = passes, .judged = passes == 1};
        auto const expected = train_serially(run, world.size());
        expect_same(train_zero(world, run, ZeroStage::optimizer_states, passes == 1), expected, 0);
        expect_same(train_zero(world, run, ZeroStage::gradients, passes == 2), expected, 0);
      }
    }
  });
}

TEST_P(UnusedSharded, FullyShardedUpdatesWhatSomeRankHas) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    for (UnusedGradients const unused : {UnusedGradients::zero, UnusedGradients::find, UnusedGradients::fixed}) {
      for (std::size_t const passes : {1U, 2U}) {
        Schedule const run{.unused = unused, .passes = passes, .judged = passes == 2};
        auto const expected = train_serially(run, world.size());
        expect_same(train_fully_sharded(world, run, {}), expected, 0);
        for (HybridSum const sum : {HybridSum::rank_order, HybridSum::by_group}) {
          FullyShardedOptions options;
          options.shard_size = world.size() / 2;
          options.hybrid_sum = sum;
          expect_same(train_fully_sharded(world, run, options), expected, 0);
        }
      }
    }
  });
}

TEST_P(UnusedSharded, LambsNormsAreOfWhatSomeRankHas) {
  run_thread_ranks(GetParam(), [](Communicator& world) {
    Schedule const run{.first = LambOptions{.lr = 0.01, .weight_decay = 0.1}};
    auto const expected = train_serially(run, world.size());
    expect_same(train_zero(world, run, ZeroStage::gradients, true), expected, 1e-6);
    expect_same(train_fully_sharded(world, run, {}), expected, 1e-6);
  });
}

/// In three steps rank r has gradients of parameters 0 and 1 + r, but that rank 1 leaves one out in the second.
template <typename Train>
void expect_promise_broken(Communicator& world, Train&& step_of, char const* call) {
  auto const mine = 1 + static_cast<std::size_t>(world.rank());
  step_of(std::vector<std::size_t>{0, mine});
  if (world.rank() == 1) {
    expect_error(ErrorCode::invalid_argument, {call, "2 got no gradient", "first step"},
                 [&] { step_of(std::vector<std::size_t>{0}); });
  } else {
    step_of(std::vector<std::size_t>{0, mine});
  }
  step_of(std::vector<std::size_t>{0, mine});
}

template <typename Strategy>
void expect_sgd(Strategy& strategy, std::vector<float> const& steps_of) {
  EXPECT_EQ(strategy.step_count(), 3);
  for (std::size_t i = 0; i < steps_of.size(); ++i) {
    std::vector<float> const values = strategy.master(i);
    for (float const value : values) ASSERT_EQ(value, 1 - 0.5F * steps_of[i]) << "parameter " << i;
  }
}

struct Ones {
  std::vector<std::vector<float>> values{4, std::vector<float>(100, 1)};
  [[nodiscard]] std::vector<BufferView> views() {
    std::vector<BufferView> all;
    for (std::vector<float>& one : values) all.push_back(std::span<float>(one));
    return all;
  }
};

/// Three steps of gradients of 1, averaged over two ranks.
std::vector<float> const kApplied{3, 1.5F, 1, 0};

TEST(UnusedPromise, ZeroSaysWhoBrokeItOnceTheStepHasEnded) {
  run_thread_ranks(2, [](Communicator& world) {
    Ones ones;
    for (bool const judged : {false, true}) {
      ZeroOptimizer zero(world, {{ones.views(), SgdOptions{.lr = 0.5}}},
                         {.buckets = {.stream = {}, .unused = UnusedGradients::fixed},
                          .gradients = judged ? GradientPolicy{.max_norm = 1e9} : GradientPolicy{}});
      expect_promise_broken(
          world,
          [&](std::vector<std::size_t> const& with) {
            for (std::size_t const i : with) {
              std::ranges::fill(floats(zero.gradient(i)), 1.0F);
              zero.mark_ready(i);
            }
            zero.step();
          },
          "tensor");
      expect_sgd(zero, kApplied);
      expect_error(ErrorCode::invalid_argument, {"tensor 3 had no gradient"}, [&] { zero.mark_ready(3); });
    }
  });
}

TEST(UnusedPromise, FullyShardedSaysWhoBrokeItOnceTheStepHasEnded) {
  run_thread_ranks(2, [](Communicator& world) {
    Ones ones;
    FullySharded model(world, {{"all", {{ones.views(), SgdOptions{.lr = 0.5}}}}}, {.unused = UnusedGradients::fixed});
    expect_promise_broken(
        world,
        [&](std::vector<std::size_t> const& with) {
          model.before_forward(0);
          model.after_forward(0);
          model.before_backward(0);
          for (std::size_t i = 0; i < 4; ++i) {
            if (std::ranges::find(with, i) == with.end()) {
              model.mark_unused(i);
            } else {
              std::ranges::fill(floats(model.gradient(i)), 1.0F);
            }
          }
          model.after_backward(0);
          model.step();
        },
        "FullySharded::step");
    expect_sgd(model, kApplied);
    model.before_forward(0);
    model.after_forward(0);
    model.before_backward(0);
    auto const other = static_cast<std::size_t>(2 - world.rank());
    expect_error(ErrorCode::invalid_argument, {("mark_unused(" + std::to_string(other) + ")").c_str()},
                 [&] { model.after_backward(0); });
    model.mark_unused(other);
    model.mark_unused(3);
    model.after_backward(0);
  });
}

TEST(UnusedSharded, AWayOfOneRankIsAMismatch) {
  run_thread_ranks(2, [](Communicator& world) {
    Ones ones;
    auto const unused = world.rank() == 0 ? UnusedGradients::zero : UnusedGradients::find;
    expect_error(ErrorCode::mismatch, {"unused"}, [&] {
      FullySharded(world, {{"all", {{ones.views(), SgdOptions{}}}}}, {.unused = unused});
    });
  });
}

}  // namespace
}  // namespace weft::test
