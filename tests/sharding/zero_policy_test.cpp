// Steps that unscale, look for overflow and clip, against replicas that do so in passes of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/optim/gradients.hpp"
#include "runtime/error_matchers.hpp"
#include "sharding/zero_training.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

constexpr ZeroStage kStages[] = {ZeroStage::optimizer_states, ZeroStage::gradients};

struct Case {
  OptimizerOptions options;
  DataType dtype = DataType::f32;
  std::optional<DataType> gradients{};  ///< absent: as the parameters
  std::optional<double> max_norm{};
  NormType norm_type = NormType::l2;
  std::optional<float> max_value{};
  bool scales = true;
  float init_scale = 1024;
  /// A step in which rank step % ranks has an infinite gradient, every third one. Else none.
  bool overflows = false;
  bool zero_gradients = false;
  std::size_t steps = 7;
};

std::vector<TensorSpec> small_model(DataType dtype) {
  std::vector<TensorSpec> specs = model(9, 71);
  for (TensorSpec& spec : specs) spec.dtype = dtype;
  return specs;
}

/// f32 values as `view`'s type.
void put(BufferView view, std::vector<float> const& values) {
  kernels::convert(values.data(), DataType::f32, view.data, view.dtype, view.count);
}

std::vector<float> take(BufferView view) {
  std::vector<float> values(view.count);
  kernels::convert(view.data, view.dtype, values.data(), DataType::f32, view.count);
  return values;
}

class Model {
 public:
  explicit Model(Case const& c) {
    for (TensorSpec const& spec : small_model(c.dtype)) {
      memory_.push_back(Buffer::host(spec.count, spec.dtype));
      views_.push_back(memory_.back().view());
      std::vector<float> values(spec.count);
      for (std::size_t i = 0; i < spec.count; ++i) values[i] = 0.1F * gradient_value(9, 9, views_.size(), i);
      put(views_.back(), values);
    }
  }
  [[nodiscard]] std::vector<ParameterGroup> groups(Case const& c) const { return {{views_, c.options}}; }
  [[nodiscard]] std::vector<BufferView> const& views() const { return views_; }

 private:
  std::vector<Buffer> memory_;
  std::vector<BufferView> views_;
};

/// The gradient of rank `rank`'s loss · scale. It follows the parameter, so that no wrong bit is forgotten.
void backward(Case const& c, BufferView gradient, BufferView parameter, int rank, int ranks, std::size_t step,
              std::size_t tensor, float scale) {
  std::vector<float> values = take(parameter);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * (0.1F * values[i] + 0.05F * gradient_value(rank, step, tensor, i));
  }
  bool const mine = static_cast<int>(step) % ranks == rank;
  if (c.overflows && mine && step % 3 == 1 && tensor == 4)
    values[values.size() / 2] = std::numeric_limits<float>::infinity();
  put(gradient, values);
}

/// What a training ends with.
struct Outcome {
  std::vector<std::vector<float>> masters;
  std::vector<std::vector<float>> parameters;
  std::vector<double> norms;  ///< by step; −1: skipped
  std::vector<float> scales;
  std::int64_t steps = 0;
  std::size_t clipped = 0;  ///< elements beyond max_value
};

GradScaler scaler_of(Case const& c) {
  return GradScaler({.init_scale = c.init_scale, .growth_interval = 2, .enabled = c.scales});
}

/// Replicas, and each thing in a pass of its own.
Outcome train_in_passes(Communicator& world, Case const& c) {
  Model const model(c);
  std::vector<TensorSpec> specs = small_model(c.gradients.value_or(c.dtype));
  Bucketer ddp(world, specs);
  Optimizer optimizer(model.groups(c));
  GradScaler scaler = scaler_of(c);
  Outcome outcome;
  for (std::size_t step = 0; step < c.steps; ++step) {
    std::vector<BufferView> gradients;
    for (std::size_t i = model.views().size(); i-- > 0;) {
      backward(c, ddp.gradient(i), model.views()[i], world.rank(), world.size(), step, i, scaler.scale());
      ddp.mark_ready(i);
    }
    ddp.finish();
    for (std::size_t i = 0; i < model.views().size(); ++i) gradients.push_back(ddp.gradient(i));
    GradientNorm const norm = gradient_norm(gradients, c.norm_type, scaler.inv_scale());
    if (!norm.finite) scaler.found_inf() = 1;
    float const clip = c.max_norm && norm.finite ? clip_factor(norm.norm, *c.max_norm) : 1;
    StepInputs inputs = scaler.inputs();
    inputs.clip = &clip;
    if (c.max_value) {
      unscale_and_check(gradients, scaler.inv_scale(), scaler.found_inf());
      for (BufferView const& gradient : gradients) {
        for (float const value : take(gradient)) outcome.clipped += std::abs(value) > *c.max_value ? 1 : 0;
      }
      clip_grad_value(gradients, *c.max_value);
      inputs = {.found_inf = c.scales ? inputs.found_inf : nullptr};
    }
    optimizer.step(gradients, inputs);
    scaler.update();
    bool const judges = c.scales || c.max_norm;
    outcome.norms.push_back(!judges ? 0 : norm.finite ? norm.norm : -1);
    outcome.scales.push_back(scaler.scale());
  }
  for (std::size_t i = 0; i < model.views().size(); ++i) {
    outcome.masters.push_back(take(optimizer.master(i)));
    outcome.parameters.push_back(take(model.views()[i]));
  }
  outcome.steps = optimizer.step_count();
  return outcome;
}

Outcome train_by_policy(Communicator& world, Case const& c, ZeroOptions options, bool reduce_first = false) {
  Model const model(c);
  GradScaler scaler = scaler_of(c);
  options.optimizer.zero_gradients = c.zero_gradients;
  options.gradients = {&scaler, c.max_norm, c.norm_type, c.max_value};
  options.gradient_dtype = c.gradients;
  if (!c.scales) options.gradients.scaler = nullptr;
  ZeroOptimizer zero(world, model.groups(c), options);
  Outcome outcome;
  for (std::size_t step = 0; step < c.steps; ++step) {
    for (std::size_t i = model.views().size(); i-- > 0;) {
      zero.wait_parameter(i);
      backward(c, zero.gradient(i), zero.parameter(i), world.rank(), world.size(), step, i, scaler.scale());
      zero.mark_ready(i);
    }
    if (reduce_first) zero.reduce();
    zero.step();
    EXPECT_EQ(scaler.found_inf() != 0, c.scales && !zero.gradient_norm().finite);
    scaler.update();
    outcome.norms.push_back(zero.gradient_norm().finite ? zero.gradient_norm().norm : -1);
    outcome.scales.push_back(scaler.scale());
    for (std::size_t i = 0; i < model.views().size() && c.zero_gradients; ++i) {
      for (float const value : take(zero.gradient(i))) EXPECT_EQ(value, 0.0F);
    }
  }
  for (std::size_t i = 0; i < model.views().size(); ++i) {
    outcome.masters.push_back(zero.master(i));
    outcome.parameters.push_back(take(zero.parameter(i)));
  }
  outcome.steps = zero.step_count();
  return outcome;
}

/// `exact`: the same bits; else within 1e-6.
void expect_equal(Outcome const& got, Outcome const& expected, bool exact) {
  EXPECT_EQ(got.scales, expected.scales);
  EXPECT_EQ(got.steps, expected.steps);
  ASSERT_EQ(got.norms.size(), expected.norms.size());
  for (std::size_t step = 0; step < got.norms.size(); ++step) {
    EXPECT_NEAR(got.norms[step], expected.norms[step], 1e-6 * std::abs(expected.norms[step])) << "step " << step;
  }
  for (std::size_t t = 0; t < got.masters.size(); ++t) {
    if (exact) {
      ASSERT_EQ(got.masters[t], expected.masters[t]) << "tensor " << t;
      ASSERT_EQ(got.parameters[t], expected.parameters[t]) << "tensor " << t;
      continue;
    }
    for (std::size_t i = 0; i < got.masters[t].size(); ++i) {
      float const limit = 1e-6F * std::max(1.0F, std::abs(expected.masters[t][i]));
      ASSERT_NEAR(got.masters[t][i], expected.masters[t][i], limit) << "tensor " << t << ", element " << i;
    }
  }
}

ZeroOptions small_buckets(ZeroStage stage) {
  ZeroOptions options{.stage = stage};
  options.buckets.limits = {3000, 9000, 1000};
  return options;
}

struct Kind {
  char const* name;
  OptimizerOptions options;
};

std::vector<Kind> all_six() {
  return {{"AdamW", AdamWOptions{.lr = 0.01}},
          {"Adam", AdamOptions{.lr = 0.01, .weight_decay = 0.1, .amsgrad = true}},
          {"Sgd", SgdOptions{.lr = 0.1, .momentum = 0.9}},
          {"Lamb", LambOptions{.lr = 0.01, .weight_decay = 0.01}},
          {"Lion", LionOptions{.lr = 0.01, .maximize = true}},
          {"Adagrad", AdagradOptions{.lr = 0.1}}};
}

class ZeroPolicy : public testing::TestWithParam<Kind> {};

TEST_P(ZeroPolicy, FollowsSeparatePassesThroughOverflows) {
  bool const lamb = std::holds_alternative<LambOptions>(GetParam().options);
  for (int const ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      for (DataType const dtype : {DataType::f32, DataType::bf16, DataType::f16}) {
        for (bool const clips : {false, true}) {
          Case c{.options = GetParam().options, .dtype = dtype, .overflows = true};
          if (clips) c.max_norm = 0.5;
          c.zero_gradients = clips == (dtype == DataType::bf16);
          Outcome const expected = train_in_passes(world, c);
          for (ZeroStage const stage : kStages) {
            SCOPED_TRACE(std::string(to_string(dtype)) + (clips ? ", clips, " : ", ") + std::to_string(ranks) +
                         " ranks, stage " + std::to_string(static_cast<int>(stage)));
            expect_equal(train_by_policy(world, c, small_buckets(stage)), expected, !clips && !lamb);
          }
          // The case is what it claims to be.
          EXPECT_LT(expected.steps, 7);
          EXPECT_GT(expected.steps, 2);
          if (clips) {
            EXPECT_GT(expected.norms[0], 0.6);
          }
        }
      }
    });
  }
}

// By value: with a scaler behind the verdict, without one in the single pass over a shard.
class ZeroPolicyByValue : public testing::TestWithParam<Kind> {};

TEST_P(ZeroPolicyByValue, ClipsAsSeparatePassesDo) {
  for (int const ranks : {1, 3}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      for (DataType const dtype : {DataType::f32, DataType::bf16}) {
        for (bool const scales : {false, true}) {
          Case const c{.options = GetParam().options,
                       .dtype = dtype,
                       .max_value = 0.03125F,
                       .scales = scales,
                       .overflows = scales};
          Outcome const expected = train_in_passes(world, c);
          EXPECT_GT(expected.clipped, 100U);
          EXPECT_EQ(expected.steps < 7, scales);
          for (ZeroStage const stage : kStages) {
            SCOPED_TRACE(std::string(to_string(dtype)) + (scales ? ", scales, " : ", ") + std::to_string(ranks) +
                         " ranks, stage " + std::to_string(static_cast<int>(stage)));
            expect_equal(train_by_policy(world, c, small_buckets(stage)), expected, true);
            expect_equal(train_by_policy(world, c, small_buckets(stage), true), expected, true);
          }
        }
      }
    });
  }
}

// Lamb sums norms in another order, and has no bits to compare.
std::vector<Kind> all_but_lamb() {
  std::vector<Kind> kinds = all_six();
  std::erase_if(kinds, [](Kind const& kind) { return std::holds_alternative<LambOptions>(kind.options); });
  return kinds;
}

std::string name_of(testing::TestParamInfo<Kind> const& kind) {
  return kind.param.name;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ZeroPolicy, testing::ValuesIn(all_six()), name_of);
INSTANTIATE_TEST_SUITE_P(Optimizers, ZeroPolicyByValue, testing::ValuesIn(all_but_lamb()), name_of);

// f16 gradients overflow by themselves once the scale has grown enough: it climbs, falls and climbs again.
TEST(ZeroPolicySteps, ScalesGrowAndFallAlikeOnAllRanks) {
  run_thread_ranks(3, [](Communicator& world) {
    Case c{.options = AdamWOptions{.lr = 0.01}, .dtype = DataType::f16};
    c.init_scale = 65536;
    c.steps = 14;
    Outcome const expected = train_in_passes(world, c);
    EXPECT_LT(expected.steps, 14);
    EXPECT_GT(*std::max_element(expected.scales.begin(), expected.scales.end()), 65536);
    bool fell = false;
    for (std::size_t i = 1; i < c.steps; ++i) fell = fell || expected.scales[i] < expected.scales[i - 1];
    EXPECT_TRUE(fell);
    for (ZeroStage const stage : kStages) expect_equal(train_by_policy(world, c, small_buckets(stage)), expected, true);
  });
}

TEST(ZeroPolicySteps, GradientsMayBeWiderThanParameters) {
  for (int const ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      for (DataType const dtype : {DataType::bf16, DataType::f16}) {
        Case const c{.options = AdamWOptions{.lr = 0.01},
                     .dtype = dtype,
                     .gradients = DataType::f32,
                     .overflows = true,
                     .zero_gradients = true};
        Outcome const expected = train_in_passes(world, c);
        for (ZeroStage const stage : kStages) {
          expect_equal(train_by_policy(world, c, small_buckets(stage)), expected, true);
        }
      }
    });
  }
}

TEST(ZeroPolicySteps, HoldsWithoutOverlapAfterReduceAndForInfNorms) {
  run_thread_ranks(2, [](Communicator& world) {
    for (NormType const type : {NormType::l2, NormType::inf}) {
      Case const c{.options = AdamWOptions{.lr = 0.01}, .max_norm = 0.05, .norm_type = type, .overflows = true};
      Outcome const expected = train_in_passes(world, c);
      ZeroOptions options = small_buckets(ZeroStage::gradients);
      expect_equal(train_by_policy(world, c, options, true), expected, false);
      options.buckets.overlap = false;
      expect_equal(train_by_policy(world, c, options), expected, false);
    }
  });
}

TEST(ZeroPolicySteps, WithoutAScalerNotFiniteGradientsAreNotApplied) {
  run_thread_ranks(3, [](Communicator& world) {
    Case const c{.options = SgdOptions{.lr = 0.1}, .max_norm = 0.5, .scales = false, .overflows = true};
    Outcome const expected = train_in_passes(world, c);
    EXPECT_EQ(expected.steps, 5);
    expect_equal(train_by_policy(world, c, small_buckets(ZeroStage::optimizer_states)), expected, false);
  });
}

TEST(ZeroPolicySteps, JudgesWhatReducedGradientsWereChangedTo) {
  run_thread_ranks(3, [](Communicator& world) {
    Case const c{.options = SgdOptions{.lr = 0.1}};
    Model const model(c);
    GradScaler scaler = scaler_of(c);
    ZeroOptions options = small_buckets(ZeroStage::gradients);
    options.gradients = {.scaler = &scaler, .max_norm = 1e9};
    ZeroOptimizer zero(world, model.groups(c), options);
    auto const step = [&](std::size_t number, auto&& change) {
      for (std::size_t i = 0; i < model.views().size(); ++i) {
        zero.wait_parameter(i);
        backward(c, zero.gradient(i), zero.parameter(i), world.rank(), world.size(), number, i, scaler.scale());
        zero.mark_ready(i);
      }
      zero.reduce();
      change();
      zero.step();
      scaler.update();
      return zero.gradient_norm();
    };
    EXPECT_TRUE(step(0, [] {}).finite);
    GradientNorm const zeroed = step(1, [&] {
      for (std::size_t i = 0; i < model.views().size(); ++i) put(zero.gradient_shard(i), std::vector<float>(3000));
    });
    EXPECT_EQ(zeroed.norm, 0);
    EXPECT_EQ(zero.step_count(), 2);
    auto const spoil = [&] {  // on one rank only
      for (std::size_t i = 0; i < model.views().size() && world.rank() == 1; ++i) {
        for (float& value : floats(zero.gradient_shard(i))) value = std::numeric_limits<float>::quiet_NaN();
      }
    };
    EXPECT_FALSE(step(2, spoil).finite);
    EXPECT_EQ(zero.step_count(), 2);
    EXPECT_EQ(scaler.scale(), 1024);  // grown once, fallen once
    // One rank may also know of an overflow from elsewhere.
    step(3, [&] { scaler.found_inf() = world.rank() == 2 ? 1.0F : 0.0F; });
    EXPECT_EQ(zero.step_count(), 2);
    EXPECT_EQ(scaler.scale(), 512);
  });
}

TEST(ZeroPolicySteps, RefusesWhatIsDecidedTwiceAndRanksThatDiffer) {
  run_thread_ranks(2, [](Communicator& world) {
    Case const c{.options = SgdOptions{}};
    Model const model(c);
    GradScaler scaler;
    float const one = 1;
    ZeroOptions options;
    options.gradients = {.scaler = &scaler, .max_norm = -1};
    EXPECT_THROW(ZeroOptimizer(world, model.groups(c), options), Error);
    options.gradients.max_norm = 1.0 + world.rank();
    try {
      ZeroOptimizer const zero(world, model.groups(c), options);
      ADD_FAILURE() << "accepted";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_NE(std::string(error.what()).find("max_norm"), std::string::npos) << error.what();
    }
    options.gradients.max_norm = 1;
    std::vector<BufferView> views = model.views();
    Buffer const half = Buffer::host(10, DataType::bf16);
    views.push_back(half.view());
    options.gradient_dtype = DataType::f32;
    EXPECT_THROW(ZeroOptimizer(world, {{views, SgdOptions{}}}, options), Error);  // parameters of two types
    options.gradient_dtype = DataType::i32;
    EXPECT_THROW(ZeroOptimizer(world, model.groups(c), options), Error);
    options.gradient_dtype.reset();
    ZeroOptimizer zero(world, model.groups(c), options);
    EXPECT_THROW(zero.step({.inv_scale = &one}), Error);
    EXPECT_THROW(zero.step({.clip = &one}), Error);
    EXPECT_THROW(zero.step({.found_inf = &one}), Error);
    zero.step();  // nothing was sent
    EXPECT_EQ(zero.step_count(), 1);
  });
}

TEST(ZeroPolicySteps, RefusesALimitThatIsNoneThatIsSetTwiceOrThatDiffers) {
  run_thread_ranks(2, [](Communicator& world) {
    Case const c{.options = SgdOptions{}};
    Model const model(c);
    float const one = 1;
    ZeroOptions options;
    for (float const wrong : {-1.0F, std::numeric_limits<float>::quiet_NaN()}) {
      options.gradients.max_value = wrong;
      expect_error(ErrorCode::invalid_argument, {"limit", "at least 0"},
                   [&] { ZeroOptimizer(world, model.groups(c), options); });
    }
    options.gradients = {.max_norm = 1, .max_value = 2.0F};
    expect_error(ErrorCode::invalid_argument, {"max_norm (1)", "max_value (2)"},
                 [&] { ZeroOptimizer(world, model.groups(c), options); });
    options.gradients = {.max_value = 1.0F + static_cast<float>(world.rank())};
    expect_error(ErrorCode::mismatch, {"max_value", "rank 1: 2"},
                 [&] { ZeroOptimizer(world, model.groups(c), options); });
    options.gradients.max_value = 1;
    ZeroOptimizer zero(world, model.groups(c), options);
    expect_error(ErrorCode::invalid_argument, {"clip_value"}, [&] { zero.step({.clip_value = one}); });
    zero.step({.clip = &one});
    EXPECT_EQ(zero.step_count(), 1);
  });
}

// Shards are judged meanwhile, on the stream's thread.
TEST(ZeroPolicySteps, FoundInfMayBeSetWhileGradientsTravel) {
  run_thread_ranks(2, [](Communicator& world) {
    std::vector<float> values(1000, 1);
    GradScaler scaler;
    ZeroOptimizer zero(world, {{{BufferView(std::span(values))}, SgdOptions{}}},
                       {.buckets = {.rebuild = false}, .gradients = {.scaler = &scaler}});
    auto* const gradient = static_cast<float*>(zero.gradient(0).data);
    std::fill_n(gradient, values.size(), 1.0F);
    zero.mark_ready(0);
    if (world.rank() == 1) scaler.found_inf() = 1;
    zero.step();
    EXPECT_FALSE(zero.gradient_norm().finite);
    EXPECT_EQ(zero.step_count(), 0);
    zero.wait_parameters();
  });
}

}  // namespace
}  // namespace weft::test
