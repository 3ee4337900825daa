// The scalar rules that CPU and CUDA share against the SIMD kernels: on targets with a fused multiply-add, bit by bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/optim/block_state.hpp"
#include "kernels/cpu/optim/update.hpp"
#include "kernels/simd_targets.hpp"

namespace weft::test {
namespace {

using kernels::UpdateArrays;

constexpr std::size_t kCount = 1021;

struct Tensors {
  std::vector<float> parameter, gradient;
  std::vector<std::vector<float>> state;

  explicit Tensors(bool wild) : parameter(kCount), gradient(kCount), state(3, std::vector<float>(kCount)) {
    std::mt19937_64 random(6);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < kCount; ++i) {
      parameter[i] = normal(random);
      gradient[i] = 0.1F * normal(random);
      state[0][i] = 0.1F * normal(random);
      state[1][i] = 0.01F * std::fabs(normal(random));
      state[2][i] = 0.01F * std::fabs(normal(random));
    }
    if (!wild) return;
    float const values[] = {0, -0.0F, INFINITY, -INFINITY, std::nanf(""), 1e-40F, 3e38F, -1e-30F};
    for (std::size_t i = 0; i < 200; ++i) gradient[5 * i] = values[i % 8];
    gradient[1] = 0;
    state[0][1] = 0;
  }
  [[nodiscard]] UpdateArrays arrays() {
    UpdateArrays arrays;
    arrays.parameter = parameter.data();
    arrays.gradient = gradient.data();
    arrays.state = {state[0].data(), state[1].data(), state[2].data()};
    return arrays;
  }
  template <typename Rule>
  void run(Rule const& rule, float factor) {
    for (std::size_t i = 0; i < kCount; ++i) {
      float own[3] = {state[0][i], state[1][i], state[2][i]};
      parameter[i] = rule(parameter[i], gradient[i] * factor, own);
      for (int k = 0; k < Rule::kStates; ++k) state[static_cast<std::size_t>(k)][i] = own[k];
    }
  }
};

/// Equal bits, or both NaN.
testing::AssertionResult alike(std::vector<float> const& a, std::vector<float> const& b, double tolerance) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) continue;
    if (std::fabs(a[i] - b[i]) <= tolerance * std::max(1.0F, std::fabs(b[i]))) continue;
    return testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
  }
  return testing::AssertionSuccess();
}

struct Pair {
  std::string name;
  std::function<void(Tensors&, float)> vectors, scalar;
};

std::vector<Pair> pairs() {
  auto const adam = kernels::adam_scalars(1e-2, 0.9, 0.99, 1e-8, 0.1, kernels::Decay::l2, 3);
  auto const adamw = kernels::adam_scalars(1e-2, 0.9, 0.99, 1e-8, 0.1, kernels::Decay::decoupled, 3);
  auto const sgd = kernels::sgd_scalars(0.1, 0, 0, 0.1, false, 2);
  auto const nesterov = kernels::sgd_scalars(0.1, 0.9, 0, 0.1, true, 2);
  auto const dampened = kernels::sgd_scalars(0.1, 0.9, 0.3, 0, false, 2);
  auto const lion = kernels::lion_scalars(0.1, 0.9, 0.99, 0.1);
  auto const adagrad = kernels::adagrad_scalars(0.1, 0.1, 0.1, 1e-10, 3);
  auto const use = [](float factor) { return kernels::GradientUse{factor, false}; };
  auto const sgd_pair = [=](char const* name, kernels::SgdScalars s) {
    return Pair{name, [=](Tensors& t, float f) { kernels::sgd(t.arrays(), kCount, s, use(f)); },
                [=](Tensors& t, float f) {
                  if (s.has_momentum) return t.run(kernels::SgdRule<true>{s}, f);
                  t.run(kernels::SgdRule<false>{s}, f);
                }};
  };
  return {{"adam", [=](Tensors& t, float f) { kernels::adam(t.arrays(), kCount, adam, false, use(f)); },
           [=](Tensors& t, float f) { t.run(kernels::AdamRule<false>{adam}, f); }},
          {"adamw amsgrad", [=](Tensors& t, float f) { kernels::adam(t.arrays(), kCount, adamw, true, use(f)); },
           [=](Tensors& t, float f) { t.run(kernels::AdamRule<true>{adamw}, f); }},
          sgd_pair("sgd", sgd),
          sgd_pair("nesterov", nesterov),
          sgd_pair("dampened", dampened),
          {"lion", [=](Tensors& t, float f) { kernels::lion(t.arrays(), kCount, lion, use(f)); },
           [=](Tensors& t, float f) { t.run(kernels::LionRule{lion}, f); }},
          {"adagrad", [=](Tensors& t, float f) { kernels::adagrad(t.arrays(), kCount, adagrad, use(f)); },
           [=](Tensors& t, float f) { t.run(kernels::AdagradRule{adagrad}, f); }}};
}

/// Whether the chosen target fuses multiplication and addition.
bool fuses() {
  Tensors one(false);
  one.parameter.assign(kCount, 1 + 0x1p-12F);
  one.gradient.assign(kCount, 1 + 0x1p-12F);
  kernels::sgd(one.arrays(), kCount, {1 + 0x1p-12F, 0, 1, 0, false, false}, {});
  return one.parameter[0] == std::fma(-(1 + 0x1p-12F), 1 + 0x1p-12F, 1 + 0x1p-12F);
}

TEST(SharedMathTest, RulesAreWhatTheSimdKernelsCompute) {
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    double const tolerance = fuses() ? 0 : 2e-6;
    for (auto const& pair : pairs()) {
      for (bool const wild : {false, true}) {
        if (wild && tolerance != 0) continue;  // near zero and infinity a second rounding decides
        Tensors vectors(wild);
        Tensors scalar = vectors;
        for (float const factor : {0.5F, -0.3F, 1.0F}) {
          pair.vectors(vectors, factor);
          pair.scalar(scalar, factor);
        }
        ASSERT_TRUE(alike(scalar.parameter, vectors.parameter, tolerance)) << pair.name << ", target " << target;
        for (std::size_t k = 0; k < 3; ++k) {
          ASSERT_TRUE(alike(scalar.state[k], vectors.state[k], tolerance)) << pair.name << ", state " << k;
        }
      }
    }
  }
}

TEST(SharedMathTest, StatesPackAlike) {
  std::mt19937_64 random(4);
  std::normal_distribution<float> normal;
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    bool const exact = fuses();
    for (auto const code : {kernels::StateCode::signed_squares, kernels::StateCode::positive_fourths}) {
      for (std::uint32_t const seed : {kernels::kNearest, 7U, 0x80000001U}) {
        for (float const size : {1.0F, 1e-38F, 1e30F}) {
          std::vector<float> values(kernels::kStateBlock);
          for (float& value : values) value = size * normal(random);
          if (code == kernels::StateCode::positive_fourths) {
            for (float& value : values) value = std::fabs(value);
          }
          values[3] = 0;
          std::vector<std::uint8_t> packed(values.size());
          float const scale = kernels::pack_state(code, values.data(), values.size(), seed, packed.data());
          std::vector<float> unpacked(values.size());
          kernels::unpack_state(code, packed.data(), scale, values.size(), unpacked.data());
          float const inverse = kernels::block_state::inverse_of(scale);
          for (std::size_t i = 0; i < values.size(); ++i) {
            auto const own = kernels::block_state::pack(code, values[i], inverse, seed, static_cast<std::uint32_t>(i));
            ASSERT_LE(std::abs(own - packed[i]), exact ? 0 : 1)
                << values[i] << " of " << scale << ", target " << target;
            ASSERT_EQ(kernels::block_state::unpack(code, packed[i], scale), unpacked[i]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
