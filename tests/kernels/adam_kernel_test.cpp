#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/optim/update.hpp"
#include "kernels/simd_targets.hpp"

namespace weft::test {
namespace {

struct State {
  std::vector<float> parameter, gradient, exp_avg, exp_avg_sq;

  State(std::size_t count, std::uint64_t seed) : parameter(count), gradient(count), exp_avg(count), exp_avg_sq(count) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < count; ++i) {
      parameter[i] = normal(random);
      gradient[i] = normal(random) * 0.1F;
      exp_avg[i] = normal(random) * 0.1F;
      exp_avg_sq[i] = std::fabs(normal(random)) * 0.01F;
    }
  }

  [[nodiscard]] kernels::UpdateArrays arrays(std::size_t first = 0) {
    kernels::UpdateArrays arrays;
    arrays.parameter = parameter.data() + first;
    arrays.gradient = gradient.data() + first;
    arrays.state = {exp_avg.data() + first, exp_avg_sq.data() + first, nullptr};
    return arrays;
  }

  void step(std::size_t first, std::size_t last, kernels::AdamScalars const& scalars) {
    kernels::adam(arrays(first), last - first, scalars, false, {});
  }
};

kernels::AdamScalars scalars_of_step(long long step) {
  return kernels::adam_scalars(1e-3, 0.9, 0.999, 1e-8, 0.01, kernels::Decay::decoupled, step);
}

/// Distance from `exact` in units of the last place of f32 at `scale`.
double ulps(float got, double exact, double scale) {
  double const unit = std::ldexp(1.0, std::max(std::ilogb(scale), -126) - 23);
  return std::fabs(static_cast<double>(got) - exact) / unit;
}

TEST(AdamKernelTest, OneStepIsWithinThreeUlpOfDoubleOnEveryTarget) {
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (long long const step : {1LL, 2LL, 10LL, 1000LL, 1000000LL}) {
      State const before(1021, 5);
      State after = before;
      kernels::AdamScalars const s = scalars_of_step(step);
      after.step(0, 1021, s);
      for (std::size_t i = 0; i < 1021; ++i) {
        // The kernel's scalars, so that only its own rounding is measured.
        double const g = before.gradient[i];
        double const m = before.exp_avg[i] + static_cast<double>(s.one_minus_beta1) * (g - before.exp_avg[i]);
        double const v =
            static_cast<double>(s.beta2) * before.exp_avg_sq[i] + static_cast<double>(s.one_minus_beta2) * g * g;
        double const decayed = static_cast<double>(s.decay) * before.parameter[i];
        double const p = decayed - s.step_size * m / (std::sqrt(v) * s.inv_sqrt_bias2 + s.eps);
        double const m_scale = std::max<double>(std::fabs(before.exp_avg[i]), std::fabs(g));
        ASSERT_LE(ulps(after.exp_avg[i], m, m_scale), 3)
            << "element " << i << ", step " << step << ", target " << target;
        ASSERT_LE(ulps(after.exp_avg_sq[i], v, v), 3) << "element " << i << ", step " << step << ", target " << target;
        double const p_scale = std::max(std::fabs(decayed), std::fabs(p));
        ASSERT_LE(ulps(after.parameter[i], p, p_scale), 3)
            << "element " << i << ", step " << step << ", target " << target;
      }
    }
  }
}

TEST(AdamKernelTest, BitsDoNotDependOnSplits) {
  std::mt19937_64 random(11);
  for (std::int64_t const target : runnable_targets()) {
    UseTarget const use(target);
    for (std::size_t const count : {1, 2, 3, 15, 16, 17, 127, 128, 129, 4097}) {
      State whole(count, 9);
      State pieces = whole;
      for (long long step = 1; step <= 5; ++step) {
        whole.step(0, count, scalars_of_step(step));
        for (std::size_t first = 0; first < count;) {
          std::size_t const last = std::min<std::size_t>(count, first + 1 + random() % 90);
          pieces.step(first, last, scalars_of_step(step));
          first = last;
        }
      }
      ASSERT_EQ(whole.parameter, pieces.parameter) << count;
      ASSERT_EQ(whole.exp_avg, pieces.exp_avg) << count;
      ASSERT_EQ(whole.exp_avg_sq, pieces.exp_avg_sq) << count;
    }
  }
}

TEST(AdamKernelTest, TrafficReadsEveryArrayAndWritesThree) {
  for (std::size_t const count : {1, 17, 4097}) {
    State const before(count, 21);
    State after = before;
    kernels::adam_traffic(after.arrays(), count, {});
    EXPECT_EQ(after.exp_avg, before.parameter);
    EXPECT_EQ(after.exp_avg_sq, before.exp_avg);
    EXPECT_EQ(after.gradient, before.gradient);
    EXPECT_NE(after.parameter, before.parameter);
  }
}

}  // namespace
}  // namespace weft::test
