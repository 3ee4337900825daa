#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/optim/block_state.hpp"
#include "kernels/cpu/optim/gradients.hpp"
#include "kernels/cpu/optim/update.hpp"
#include "kernels/simd_targets.hpp"

namespace weft::test {
namespace {

using kernels::GradientUse;
using kernels::UpdateArrays;

std::vector<float> random_values(std::size_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// A bf16 parameter with its f32 original, a bf16 gradient and three states.
struct Arrays {
  std::vector<std::uint16_t> parameter, gradient;
  std::vector<float> master, a, b, c;

  Arrays(std::size_t count, std::uint64_t seed) : parameter(count), gradient(count) {
    std::mt19937_64 random(seed);
    master = random_values(count, random);
    for (auto* positive : {&a, &b, &c}) {
      *positive = random_values(count, random);
      for (float& value : *positive) value = value * value;
    }
    auto const values = random_values(count, random);
    kernels::convert(values.data(), DataType::f32, gradient.data(), DataType::bf16, count);
  }
  [[nodiscard]] UpdateArrays from(std::size_t first) {
    UpdateArrays arrays;
    arrays.parameter = parameter.data() + first;
    arrays.parameter_type = DataType::bf16;
    arrays.master = master.data() + first;
    arrays.gradient = gradient.data() + first;
    arrays.gradient_type = DataType::bf16;
    arrays.state = {a.data() + first, b.data() + first, c.data() + first};
    return arrays;
  }
  bool operator==(Arrays const&) const = default;
};

struct Rule {
  char const* name;
  std::function<void(UpdateArrays const&, std::size_t, GradientUse const&)> run;
};

std::vector<Rule> rules() {
  auto const adam = kernels::adam_scalars(1e-2, 0.9, 0.99, 1e-8, 0.1, kernels::Decay::l2, 3);
  kernels::LambScalars const lamb{adam, 0.1F};
  return {
      {"adam", [=](auto const& at, auto n, auto const& use) { kernels::adam(at, n, adam, false, use); }},
      {"amsgrad", [=](auto const& at, auto n, auto const& use) { kernels::adam(at, n, adam, true, use); }},
      {"sgd",
       [](auto const& at, auto n, auto const& use) {
         kernels::sgd(at, n, {0.1F, 0, 1, 0.1F, false, false}, use);
       }},
      {"nesterov",
       [](auto const& at, auto n, auto const& use) {
         kernels::sgd(at, n, {0.1F, 0.9F, 0.5F, 0, true, true}, use);
       }},
      {"lion",
       [](auto const& at, auto n, auto const& use) {
         kernels::lion(at, n, {0.1F, 0.9F, 0.9F, 0.99F, 0.1F, 0.01F}, use);
       }},
      {"adagrad",
       [](auto const& at, auto n, auto const& use) {
         kernels::adagrad(at, n, {0.1F, 0.1F, 1e-10F}, use);
       }},
      {"lamb_moments", [=](auto const& at, auto n, auto const& use) { (void)kernels::lamb_moments(at, n, lamb, use); }},
      {"lamb_apply", [=](auto const& at, auto n, auto const&) { kernels::lamb_apply(at, n, lamb, 0.1F); }},
  };
}

TEST(OptimKernelsTest, BitsDoNotDependOnSplits) {
  std::mt19937_64 random(11);
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use_target(target);
    for (auto const& rule : rules()) {
      for (std::size_t const count : {1, 2, 15, 16, 17, 127, 129, 4097}) {
        for (bool const zero : {false, true}) {
          GradientUse const use{0.5F, zero};
          Arrays whole(count, count);
          Arrays pieces = whole;
          rule.run(whole.from(0), count, use);
          for (std::size_t first = 0; first < count;) {
            std::size_t const last = std::min<std::size_t>(count, first + 1 + random() % 90);
            rule.run(pieces.from(first), last - first, use);
            first = last;
          }
          ASSERT_TRUE(whole == pieces) << rule.name << ", " << count << " elements, target " << target;
        }
      }
    }
  }
}

TEST(OptimKernelsTest, ZeroedGradientsAreZeroAndOthersUntouched) {
  for (auto const& rule : rules()) {
    if (std::string(rule.name) == "lamb_apply") continue;
    for (bool const zero : {false, true}) {
      Arrays arrays(129, 4);
      auto const before = arrays.gradient;
      rule.run(arrays.from(0), 129, {1, zero});
      EXPECT_EQ(arrays.gradient, zero ? std::vector<std::uint16_t>(129) : before) << rule.name;
    }
  }
}

// The first step's direction is 1 everywhere; what pads the last vector has none.
TEST(OptimKernelsTest, LambWithoutEpsMeasuresWhatIsThere) {
  auto const scalars = kernels::lamb_scalars(0.9, 0.999, 0, 0, 1);
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (std::size_t const count : {1, 3, 16, 17, 4099}) {
      std::vector<float> parameter(count, 2), gradient(count, 0.5F), m(count), v(count);
      UpdateArrays arrays;
      arrays.parameter = parameter.data();
      arrays.gradient = gradient.data();
      arrays.state = {m.data(), v.data(), nullptr};
      auto const norms = kernels::lamb_moments(arrays, count, scalars, {});
      EXPECT_NEAR(norms.direction, static_cast<double>(count), 1e-4 * static_cast<double>(count));
      EXPECT_EQ(norms.parameter, 4.0 * static_cast<double>(count));
    }
  }
}

TEST(GradientKernelsTest, MeasuresWhatASerialLoopMeasures) {
  std::mt19937_64 random(3);
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (std::size_t const count : {0, 1, 3, 16, 31, 1000, 100003}) {
      for (auto const type : {DataType::f32, DataType::bf16, DataType::f16}) {
        std::vector<std::byte> stored(count * size_of(type));
        auto values = random_values(count, random);
        kernels::convert(values.data(), DataType::f32, stored.data(), type, count);
        kernels::convert(stored.data(), type, values.data(), DataType::f32, count);
        double squares = 0;
        float largest = 0;
        for (float const value : values) {
          squares += 0.25 * value * value;
          largest = std::max(largest, 0.5F * std::fabs(value));
        }
        auto const measure = kernels::measure_gradient(stored.data(), count, type, 0.5F);
        EXPECT_TRUE(measure.finite);
        EXPECT_NEAR(measure.sum_of_squares, squares, 1e-5 * squares);
        EXPECT_EQ(measure.largest, largest);
      }
    }
  }
}

TEST(GradientKernelsTest, FindsOneElementThatIsNotFinite) {
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (std::size_t const count : {1, 16, 33, 8191}) {
      for (std::size_t const at : {std::size_t{0}, count / 2, count - 1}) {
        for (float const bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()}) {
          std::vector<float> values(count, 1);
          values[at] = bad;
          EXPECT_FALSE(kernels::measure_gradient(values.data(), count, DataType::f32, 1).finite) << at;
          values[at] = 3e38F;  // finite, though its square is not
          EXPECT_TRUE(kernels::measure_gradient(values.data(), count, DataType::f32, 1).finite) << at;
        }
      }
    }
  }
}

TEST(GradientKernelsTest, ScalesAndClamps) {
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    std::vector<float> values{-4, -0.5F, 0, 0.5F, 4, std::numeric_limits<float>::infinity(), std::nanf("")};
    kernels::clamp(values.data(), values.size(), DataType::f32, 1);
    EXPECT_TRUE(std::isnan(values.back())) << "a NaN is not hidden";
    values.pop_back();
    EXPECT_EQ(values, (std::vector<float>{-1, -0.5F, 0, 0.5F, 1, 1}));
    kernels::scale(values.data(), values.size(), DataType::f32, -2);
    EXPECT_EQ(values, (std::vector<float>{2, 1, 0, -1, -2, -2}));
  }
}

TEST(BlockStateTest, KeepsWhatItGave) {
  std::mt19937_64 random(8);
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (auto const code : {kernels::StateCode::signed_squares, kernels::StateCode::positive_fourths}) {
      for (std::size_t const count : {1, 7, 16, 255, 256}) {
        auto values = random_values(count, random);
        if (code == kernels::StateCode::positive_fourths) {
          for (float& value : values) value *= value * 1e-6F;
        }
        std::vector<std::uint8_t> packed(count);
        float const scale = kernels::pack_state(code, values.data(), count, 77, packed.data());
        std::vector<float> unpacked(count);
        kernels::unpack_state(code, packed.data(), scale, count, unpacked.data());
        std::vector<std::uint8_t> again(count);
        EXPECT_EQ(scale, kernels::pack_state(code, unpacked.data(), count, kernels::kNearest, again.data()));
        EXPECT_EQ(packed, again);
        double const step = code == kernels::StateCode::signed_squares ? 2.0 / 127 : 4.0 / 255;
        for (std::size_t i = 0; i < count; ++i) {
          // The slope at the value, and at least the first step.
          double const ratio = std::fabs(values[i]) / scale;
          double const slope = code == kernels::StateCode::signed_squares ? std::sqrt(ratio) : std::pow(ratio, 0.75);
          EXPECT_NEAR(unpacked[i], values[i], scale * (step * slope * 1.1 + 1e-4)) << i;
          EXPECT_EQ(unpacked[i] == 0,
                    values[i] == 0 || (code == kernels::StateCode::signed_squares && packed[i] == 128));
        }
      }
    }
  }
}

TEST(BlockStateTest, RoundsToTheRightOneOnAverage) {
  struct Case {
    kernels::StateCode code;
    float value;  ///< beside a largest of 1
  };
  using enum kernels::StateCode;
  for (auto const& [code, value] :
       {Case{signed_squares, 0.5F}, Case{signed_squares, -0.5F}, Case{signed_squares, 1.3e-3F},
        Case{signed_squares, 1e-4F}, Case{signed_squares, -1e-5F},  // below the first step
        Case{positive_fourths, 0.5F}, Case{positive_fourths, 1e-4F}, Case{positive_fourths, 1.3e-6F}}) {
    std::vector<float> values(256, value);
    values[0] = 1;
    double const power = code == signed_squares ? 2 : 4;
    double const most = code == signed_squares ? 127 : 255;
    double const below = std::floor(most * std::pow(std::fabs(value), 1 / power));
    double const gap = (std::pow(below + 1, power) - std::pow(below, power)) / std::pow(most, power);
    for (std::int64_t const target : runnable_targets()) {
      UseTarget const use(target);
      double sum = 0;
      for (std::uint32_t seed = 1; seed <= 400; ++seed) {
        std::vector<std::uint8_t> packed(256);
        std::vector<float> unpacked(256);
        float const scale = kernels::pack_state(code, values.data(), 256, seed, packed.data());
        kernels::unpack_state(code, packed.data(), scale, 256, unpacked.data());
        for (std::size_t i = 1; i < 256; ++i) sum += unpacked[i];
      }
      double const draws = 400 * 255;  // each one of two neighbours
      EXPECT_NEAR(sum / draws, value, 5 * 0.5 * gap / std::sqrt(draws)) << "target " << target;
    }
  }
}

TEST(BlockStateTest, WhatIsNotFiniteIsNotHidden) {
  std::vector<float> values(256, 1);
  values[100] = std::nanf("");
  std::vector<std::uint8_t> packed(256);
  EXPECT_FALSE(std::isfinite(
      kernels::pack_state(kernels::StateCode::signed_squares, values.data(), 256, kernels::kNearest, packed.data())));
}

}  // namespace
}  // namespace weft::test
