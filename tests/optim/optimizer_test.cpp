#include "weft/optimizer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "optim/double_reference.hpp"
#include "weft/error.hpp"
#include "weft/gradients.hpp"

namespace weft::test {
namespace {

struct Case {
  char const* name;
  OptimizerOptions options;
};

std::vector<Case> cases() {
  return {{"adamw", AdamWOptions{.lr = 3e-3, .weight_decay = 0.1}},
          {"adamw_amsgrad_maximize", AdamWOptions{.lr = 3e-3, .amsgrad = true, .maximize = true}},
          {"adam_l2", AdamOptions{.lr = 3e-3, .beta2 = 0.95, .weight_decay = 0.1}},
          {"adam_amsgrad", AdamOptions{.lr = 3e-3, .beta1 = 0.5, .amsgrad = true}},
          {"sgd", SgdOptions{.lr = 0.1}},
          {"sgd_momentum", SgdOptions{.lr = 0.05, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.01}},
          {"sgd_nesterov", SgdOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true, .maximize = true}},
          {"lamb", LambOptions{.lr = 1e-2, .weight_decay = 0.05}},
          {"lamb_maximize", LambOptions{.lr = 1e-2, .maximize = true}},
          {"lion", LionOptions{.lr = 1e-3, .weight_decay = 0.1}},
          {"lion_maximize", LionOptions{.lr = 1e-3, .maximize = true}},
          {"adagrad", AdagradOptions{.lr = 0.05, .lr_decay = 0.01, .initial_accumulator_value = 0.1}},
          {"adagrad_l2", AdagradOptions{.lr = 0.05, .weight_decay = 0.1, .maximize = true}}};
}

std::vector<float> random_vector(std::size_t count, std::mt19937_64& random, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

template <typename Narrow>
Narrow narrow(float value);
template <>
BFloat16 narrow(float value) {
  return to_bfloat16(value);
}
template <>
Half narrow(float value) {
  return to_half(value);
}
template <>
float narrow(float value) {
  return value;
}
float widen(float value) {
  return value;
}
template <typename Narrow>
float widen(Narrow value) {
  return to_float(value);
}

/// 60 steps of one tensor with the learning rate falling, gradients of type G, parameters of type P.
template <typename P, typename G>
void expect_follows_reference(Case const& one, OptimizerSettings const& settings, double tolerance) {
  std::mt19937_64 random(7);
  for (std::size_t const count : {std::size_t{1}, std::size_t{17}, std::size_t{1021}}) {
    std::vector<P> parameters;
    for (float const value : random_vector(count, random, 1)) parameters.push_back(narrow<P>(value));
    std::vector<double> start;
    for (P const p : parameters) start.push_back(widen(p));
    DoubleReference reference(start, one.options);
    Optimizer optimizer({BufferView(std::span(parameters))}, one.options, settings);
    double const lr = lr_of(one.options);
    for (int step = 0; step < 60; ++step) {
      optimizer.set_lr(lr * (60 - step) / 60);
      reference.set_lr(lr * (60 - step) / 60);
      std::vector<G> gradient;
      for (float const value : random_vector(count, random, 0.1F)) gradient.push_back(narrow<G>(value));
      std::vector<double> exact;
      for (G const g : gradient) exact.push_back(widen(g));
      std::vector<BufferView> const views{BufferView(std::span(gradient))};
      optimizer.step(views);
      reference.step(exact);
      if (!settings.master_weights) {
        reference.round_parameters([](double p) { return widen(narrow<P>(static_cast<float>(p))); });
      }
    }
    auto const master = optimizer.master(0);
    for (std::size_t i = 0; i < count; ++i) {
      double const got = master.dtype == DataType::f32 ? static_cast<float const*>(master.data)[i]
                                                       : widen(static_cast<P const*>(master.data)[i]);
      ASSERT_NEAR(got, reference.parameters()[i], tolerance) << one.name << ", element " << i << " of " << count;
      if constexpr (!std::is_same_v<P, float>) {
        if (settings.master_weights) {
          ASSERT_EQ(widen(parameters[i]), widen(narrow<P>(static_cast<float>(got)))) << one.name << ", element " << i;
        }
      }
    }
  }
}

TEST(OptimizerTest, FollowsTheDoubleReference) {
  // 60 steps, each rounding a parameter of about 1 by half a unit in its last place, 6e-8, and Adam's quotient by
  // three.
  for (auto const& one : cases()) expect_follows_reference<float, float>(one, {}, 8e-6);
}

TEST(OptimizerTest, NarrowParametersWithMastersLoseNothing) {
  for (auto const& one : cases()) {
    expect_follows_reference<BFloat16, float>(one, {}, 8e-6);
    expect_follows_reference<BFloat16, BFloat16>(one, {}, 8e-6);
    expect_follows_reference<Half, Half>(one, {}, 8e-6);
  }
}

TEST(OptimizerTest, NarrowParametersWithoutMastersRoundOncePerStep) {
  // A rounding that falls to the other side than the reference's is a unit in the last place of f16, 0.002 for |p| < 4;
  // few of them happen, and Lion's and SGD's next steps do not see them.
  for (auto const& one : cases()) expect_follows_reference<Half, Half>(one, {.master_weights = false}, 0.02);
}

/// A narrow tensor given in two parts, its states and original in memory of the caller's, beside the whole one.
TEST(OptimizerTest, PartsInTheCallersMemoryAreTheWhole) {
  constexpr std::size_t kCount = 1000;
  constexpr std::size_t kFirst = 384;
  std::mt19937_64 random(11);
  for (auto const& one : cases()) {
    if (std::holds_alternative<LambOptions>(one.options)) continue;
    std::vector<BFloat16> whole;
    for (float const value : random_vector(kCount, random, 1)) whole.push_back(to_bfloat16(value));
    auto parts = whole;
    Optimizer reference({BufferView(std::span(whole))}, one.options);
    std::vector<float> master(kCount);
    for (std::size_t i = 0; i < kCount; ++i) master[i] = to_float(parts[i]);
    std::vector<std::vector<float>> states;
    std::vector<ParameterMemory> memory(2);
    for (std::size_t which = 0; which < reference.state_names(0).size(); ++which) {
      states.push_back(reference.state(0, which));
    }
    auto const part = [&](auto& values, std::size_t index) {
      BufferView const all{std::span(values)};
      return index == 0 ? all.slice(0, kFirst) : all.slice(kFirst, kCount - kFirst);
    };
    for (std::size_t i = 0; i < 2; ++i) {
      memory[i].master = part(master, i);
      for (auto& state : states) memory[i].states.push_back(part(state, i));
    }
    Optimizer optimizer({{{part(parts, 0), part(parts, 1)}, one.options}}, memory, {});
    for (int step = 0; step < 5; ++step) {
      auto gradient = random_vector(kCount, random, 0.1F);
      std::vector<BufferView> const all{BufferView(std::span(gradient))};
      reference.step(all);
      optimizer.step(std::vector{part(gradient, 0), part(gradient, 1)});
    }
    EXPECT_EQ(std::memcmp(whole.data(), parts.data(), kCount * sizeof(BFloat16)), 0) << one.name;
    for (std::size_t which = 0; which < states.size(); ++which) {
      EXPECT_EQ(states[which], reference.state(0, which)) << one.name;
    }
    auto const original = reference.master(0);
    EXPECT_EQ(std::memcmp(original.data, master.data(), original.bytes()), 0) << one.name;
  }
}

TEST(OptimizerTest, OptionsChangeBetweenSteps) {
  std::vector<float> parameter{1, -2};
  std::vector<float> gradient{1, 1};
  std::vector<BufferView> const gradients{BufferView(std::span(gradient))};
  Optimizer optimizer({BufferView(std::span(parameter))}, SgdOptions{.lr = 0.5});
  optimizer.step(gradients);
  optimizer.set_options(0, SgdOptions{.lr = 1, .maximize = true});
  optimizer.step(gradients);
  EXPECT_EQ(parameter, (std::vector<float>{1.5F, -1.5F}));
}

TEST(OptimizerTest, GroupsHaveOptionsOfTheirOwn) {
  std::vector<float> a{1, 2, 3};
  std::vector<float> b{1, 2, 3};
  std::vector<float> gradient{1, 1, 1};
  Optimizer optimizer({{{BufferView(std::span(a))}, SgdOptions{.lr = 0.5}},
                       {{BufferView(std::span(b))}, SgdOptions{.lr = 0.25, .weight_decay = 1}}});
  std::vector<BufferView> const gradients(2, BufferView(std::span(gradient)));
  optimizer.step(gradients);
  EXPECT_EQ(a, (std::vector<float>{0.5, 1.5, 2.5}));
  EXPECT_EQ(b, (std::vector<float>{0.5, 1.25, 2}));
  optimizer.set_lr(1, 0);
  optimizer.step(gradients);
  EXPECT_EQ(a, (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(b, (std::vector<float>{0.5, 1.25, 2}));
}

TEST(OptimizerTest, InputsAreReadWhenUpdatesRun) {
  std::vector<float> parameter{1, 1};
  std::vector<float> gradient{8, 16};
  Optimizer optimizer({BufferView(std::span(parameter))}, SgdOptions{.lr = 1});
  float inv_scale = 0.125F;
  float clip = 1;
  float lr = 1;
  optimizer.begin_step({.lr = &lr, .inv_scale = &inv_scale, .clip = &clip});
  clip = 0.5F;
  lr = 2;
  optimizer.update(0, BufferView(std::span(gradient)));
  EXPECT_EQ(parameter, (std::vector<float>{0, -1}));
  EXPECT_EQ(gradient, (std::vector<float>{8, 16})) << "gradients stay as they were";
}

/// 50 steps with numbers from memory, which begin late, leave some out, and are not used up by steps that are skipped.
TEST(OptimizerTest, CountsStepsByANumberInMemory) {
  for (auto const& one : cases()) {
    std::mt19937_64 random(19);
    auto parameters = random_vector(517, random, 1);
    DoubleReference reference({parameters.begin(), parameters.end()}, one.options);
    Optimizer optimizer({BufferView(std::span(parameters))}, one.options);
    auto const* const sgd = std::get_if<SgdOptions>(&one.options);
    std::int64_t number = sgd != nullptr ? 1 : 4;  // SGD's first step is where its momentum begins
    for (int step = 0; step < 50; ++step) {
      auto gradient = random_vector(517, random, 0.1F);
      std::vector<BufferView> const views{BufferView(std::span(gradient))};
      float const found_inf = step % 4 == 2 ? 1 : 0;
      std::int64_t const before = optimizer.step_count();
      optimizer.step(views, {.step = &number, .found_inf = &found_inf});
      EXPECT_EQ(optimizer.step_count(), found_inf == 0 ? number : before);
      EXPECT_EQ(*optimizer.step_memory(), optimizer.step_count());
      if (found_inf != 0) continue;
      reference.set_steps(static_cast<int>(number) - 1);
      reference.step({gradient.begin(), gradient.end()});
      number += step % 7 == 0 ? 3 : 1;
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ASSERT_NEAR(parameters[i], reference.parameters()[i], 8e-6) << one.name << ", element " << i;
    }
    auto gradient = random_vector(517, random, 0.1F);
    std::int64_t const last = optimizer.step_count();
    optimizer.step(std::vector<BufferView>{BufferView(std::span(gradient))});
    EXPECT_EQ(optimizer.step_count(), last + 1) << "without a number it counts on";
  }
}

TEST(OptimizerTest, SeveralCountByTheMemoryOfOne) {
  std::mt19937_64 random(23);
  auto whole = random_vector(300, random, 1);
  auto halves = whole;
  AdamWOptions const options{.lr = 0.01};
  Optimizer both({BufferView(std::span(whole).first(100)), BufferView(std::span(whole).subspan(100))}, options);
  Optimizer leads({BufferView(std::span(halves).first(100))}, options);
  Optimizer made({BufferView(std::span(halves).subspan(100))}, options);
  Optimizer follows = std::move(made);
  leads.set_step_count(5);
  both.set_step_count(5);
  for (int step = 0; step < 6; ++step) {
    auto gradient = random_vector(300, random, 1);
    std::vector<BufferView> const parts{BufferView(std::span(gradient).first(100)),
                                        BufferView(std::span(gradient).subspan(100))};
    float const found_inf = step == 2 ? 1 : 0;
    both.step(parts, {.found_inf = &found_inf});
    leads.step(std::span(parts).first(1), {.found_inf = &found_inf});
    follows.step(std::span(parts).last(1), {.step = leads.step_memory(), .found_inf = &found_inf});
  }
  EXPECT_EQ(leads.step_count(), 10);
  EXPECT_EQ(follows.step_count(), 10);
  EXPECT_EQ(whole, halves);
}

/// Clips as passes of their own do, to the bit: f32 whatever the limit, bf16 where it has the limit.
template <typename G>
void expect_clips_as_separate_passes(Case const& one, StateType state) {
  std::mt19937_64 random(29);
  for (std::size_t const count : {std::size_t{1}, std::size_t{17}, std::size_t{1021}}) {
    auto fused = random_vector(count, random, 1);
    auto apart = fused;
    Optimizer in_one({BufferView(std::span(fused))}, one.options, {.state = state});
    Optimizer in_three({BufferView(std::span(apart))}, one.options, {.state = state});
    float const inv_scale = 1.0F / 1024;
    float const limit = std::is_same_v<G, float> ? 0.07F : 0.0625F;
    std::size_t clipped = 0;
    for (int step = 0; step < 10; ++step) {
      std::vector<G> gradient;
      for (float const value : random_vector(count, random, 102.4F)) gradient.push_back(narrow<G>(value));
      if (step == 8) gradient[count / 2] = narrow<G>(-std::numeric_limits<float>::infinity());
      if (step == 9) gradient[count / 3] = narrow<G>(std::numeric_limits<float>::quiet_NaN());
      for (G const g : gradient) clipped += std::abs(widen(g)) > 1024 * limit ? 1 : 0;
      in_one.step(std::vector<BufferView>{BufferView(std::span(gradient))},
                  {.inv_scale = &inv_scale, .clip_value = limit});
      std::vector<BufferView> const views{BufferView(std::span(gradient))};
      float found_inf = 0;
      unscale_and_check(views, inv_scale, found_inf);
      clip_grad_value(views, limit);
      in_three.step(views);
      ASSERT_EQ(std::memcmp(fused.data(), apart.data(), count * sizeof(float)), 0) << one.name << ", step " << step;
    }
    EXPECT_GT(clipped, 0U);
    EXPECT_TRUE(std::isnan(fused[count / 3])) << one.name;
    if (count > 1) {
      EXPECT_TRUE(std::isfinite(fused[count / 2])) << one.name << ": infinity is the limit";
    }
  }
}

TEST(OptimizerTest, ClipsByValueAsSeparatePassesDo) {
  for (auto const& one : cases()) {
    if (std::holds_alternative<LambOptions>(one.options)) continue;  // one NaN reaches all by the norms
    expect_clips_as_separate_passes<float>(one, StateType::f32);
    expect_clips_as_separate_passes<BFloat16>(one, StateType::f32);
  }
}

TEST(OptimizerTest, LambAndPackedStatesClipByValue) {
  for (auto const state : {StateType::f32, StateType::block8}) {
    std::mt19937_64 random(31);
    auto fused = random_vector(700, random, 1);
    auto apart = fused;
    LambOptions const options{.lr = 0.01};
    Optimizer in_one({BufferView(std::span(fused))}, options, {.state = state});
    Optimizer in_two({BufferView(std::span(apart))}, options, {.state = state});
    float const limit = 0.5F;
    for (int step = 0; step < 5; ++step) {
      auto gradient = random_vector(700, random, 1);
      std::vector<BufferView> const views{BufferView(std::span(gradient))};
      in_one.step(views, {.clip_value = limit});
      clip_grad_value(views, limit);
      in_two.step(views);
      ASSERT_EQ(fused, apart) << "step " << step;
    }
  }
}

TEST(OptimizerTest, OverflowedStepsAreSkippedAndDoNotCount) {
  for (auto const& one : cases()) {
    std::mt19937_64 random(3);
    auto skipped = random_vector(300, random, 1);
    auto plain = skipped;
    OptimizerSettings const settings{.zero_gradients = true};
    Optimizer with({BufferView(std::span(skipped))}, one.options, settings);
    Optimizer without({BufferView(std::span(plain))}, one.options, settings);
    for (int step = 0; step < 12; ++step) {
      auto gradient = random_vector(300, random, 1);
      if (step % 3 == 0) {
        float const found_inf = 1;
        auto overflowed = gradient;
        overflowed[17] = std::numeric_limits<float>::infinity();
        with.step(std::vector<BufferView>{BufferView(std::span(overflowed))}, {.found_inf = &found_inf});
        EXPECT_EQ(overflowed, std::vector<float>(300)) << "zeroed nevertheless";
      }
      float const fine = 0;
      auto copy = gradient;
      with.step(std::vector<BufferView>{BufferView(std::span(copy))}, {.found_inf = &fine});
      without.step(std::vector<BufferView>{BufferView(std::span(gradient))});
      EXPECT_EQ(gradient, std::vector<float>(300));
    }
    EXPECT_EQ(with.step_count(), 12);
    EXPECT_EQ(skipped, plain) << one.name;
  }
}

TEST(OptimizerTest, ResumesFromItsStatesBitIdentically) {
  for (auto const state : {StateType::f32, StateType::block8}) {
    for (auto const& one : cases()) {
      std::mt19937_64 random(2);
      auto parameters = random_vector(700, random, 1);
      OptimizerSettings const settings{.state = state};
      Optimizer optimizer({BufferView(std::span(parameters))}, one.options, settings);
      std::vector<std::vector<float>> gradients;
      for (int step = 0; step < 8; ++step) gradients.push_back(random_vector(700, random, 1));
      for (int step = 0; step < 4; ++step) {
        optimizer.step(std::vector<BufferView>{BufferView(std::span(gradients[step]))});
      }
      auto resumed_parameters = parameters;
      Optimizer resumed({BufferView(std::span(resumed_parameters))}, one.options, settings);
      resumed.set_step_count(optimizer.step_count());
      for (std::size_t which = 0; which < optimizer.state_names(0).size(); ++which) {
        resumed.set_state(0, which, optimizer.state(0, which));
      }
      for (int step = 4; step < 8; ++step) {
        auto copy = gradients[step];
        optimizer.step(std::vector<BufferView>{BufferView(std::span(gradients[step]))});
        resumed.step(std::vector<BufferView>{BufferView(std::span(copy))});
      }
      EXPECT_EQ(parameters, resumed_parameters) << one.name;
    }
  }
}

/// A quadratic bowl with curvatures from 0.1 to 10: eight-bit states must find its bottom as the others do.
TEST(OptimizerTest, EightBitStatesDescendAlike) {
  for (auto const& one : cases()) {
    if (std::visit([](auto const& o) { return o.maximize; }, one.options)) continue;
    auto const descend = [&](StateType state) {
      std::mt19937_64 random(5);
      auto parameters = random_vector(1000, random, 1);
      Optimizer optimizer({BufferView(std::span(parameters))}, one.options, {.state = state});
      double loss = 0;
      for (int step = 0; step < 300; ++step) {
        std::vector<float> gradient(1000);
        loss = 0;
        for (std::size_t i = 0; i < 1000; ++i) {
          float const curvature = 0.1F * std::pow(100.0F, static_cast<float>(i) / 1000);
          gradient[i] = curvature * parameters[i];
          loss += 0.5 * curvature * parameters[i] * parameters[i];
        }
        optimizer.step(std::vector<BufferView>{BufferView(std::span(gradient))});
      }
      return std::pair(loss, optimizer.state_bytes());
    };
    auto const [exact, bytes] = descend(StateType::f32);
    auto const [packed, packed_bytes] = descend(StateType::block8);
    EXPECT_LE(packed, 1.1 * exact + 1) << one.name;
    EXPECT_LE(packed_bytes, 0.26 * static_cast<double>(bytes)) << one.name;
  }
}

/// Of gradients far below one that shares their block.
TEST(OptimizerTest, EightBitStatesOfSmallGradientsAreRightOnAverage) {
  for (float const small : {1e-2F, 1e-3F, 1e-4F}) {
    auto const sums_of = [&](StateType state) {
      std::mt19937_64 random(6);
      std::normal_distribution<float> normal;
      std::vector<float> parameters(256);
      Optimizer optimizer({BufferView(std::span(parameters))}, AdamWOptions{.lr = 1e-6}, {.state = state});
      std::array<double, 2> sums{};
      for (int step = 0; step < 1500; ++step) {
        std::vector<float> gradient(256, small);
        gradient[0] = normal(random);
        optimizer.step(std::vector<BufferView>{BufferView(std::span(gradient))});
        for (std::size_t which = 0; which < 2 && step >= 500; ++which) {
          auto const values = optimizer.state(0, which);
          sums[which] = std::accumulate(values.begin() + 1, values.end(), sums[which]);
        }
      }
      return sums;
    };
    auto const exact = sums_of(StateType::f32);
    auto const packed = sums_of(StateType::block8);
    for (std::size_t which = 0; which < 2; ++which) {
      EXPECT_NEAR(packed[which] / exact[which], 1, 0.1) << "state " << which << " of gradients of " << small;
    }
  }
}

TEST(OptimizerTest, LambOfATensorInTwoPartsIsThatOfTheWhole) {
  std::mt19937_64 random(9);
  auto whole = random_vector(1000, random, 1);
  auto parts = whole;
  LambOptions const options{.lr = 0.01, .weight_decay = 0.1};
  Optimizer one({BufferView(std::span(whole))}, options);
  Optimizer two({BufferView(std::span(parts).first(300)), BufferView(std::span(parts).subspan(300))}, options);
  for (int step = 0; step < 5; ++step) {
    auto gradient = random_vector(1000, random, 1);
    one.step(std::vector<BufferView>{BufferView(std::span(gradient))});
    two.begin_step();
    auto const a = two.update_moments(0, BufferView(std::span(gradient).first(300)));
    auto const b = two.update_moments(1, BufferView(std::span(gradient).subspan(300)));
    for (std::size_t part : {0, 1}) two.apply(part, {a.parameter + b.parameter, a.direction + b.direction});
  }
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_NEAR(whole[i], parts[i], 1e-6);
}

}  // namespace
}  // namespace weft::test
