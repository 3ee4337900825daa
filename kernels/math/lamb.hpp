#pragma once

#include <cmath>

#include "kernels/math/adam.hpp"

namespace weft::kernels {

struct LambScalars {
  AdamScalars adam;    ///< with step_size = 1 / (1 − β1^t), decay 1 and l2 0
  float weight_decay;  ///< its part of the direction
};

/// Σp² and Σu² of a Lamb step: the squared norms of a tensor and of its direction u.
struct LambNorms {
  double parameter = 0;
  double direction = 0;
};

WEFT_HOST_DEVICE inline LambScalars lamb_scalars(double beta1, double beta2, double eps, double weight_decay,
                                                 long long step) {
  return {adam_scalars(1, beta1, beta2, eps, 0, Decay::decoupled, step), static_cast<float>(weight_decay)};
}

/// The factor of the direction: lr·‖p‖/‖u‖, or lr if a norm is 0.
WEFT_HOST_DEVICE inline float lamb_step_size(double lr, LambNorms const& norms) {
  bool const usable = norms.parameter > 0 && norms.direction > 0;
  double const ratio = usable ? std::sqrt(norms.parameter) / std::sqrt(norms.direction) : 1;
  return static_cast<float>(lr * ratio);
}

/// u = m̂ / (√v̂ + eps) + weight_decay·p
WEFT_HOST_DEVICE inline float lamb_direction(float p, float m, float v, LambScalars const& s) {
  float const denominator = std::fma(std::sqrt(v), s.adam.inv_sqrt_bias2, s.adam.eps);
  return std::fma(s.weight_decay, p, (m * s.adam.step_size) / denominator);
}

/// A rule as in adam.hpp, which updates the moments and sums the squares. state: exp_avg, exp_avg_sq.
struct LambMomentsRule {
  static constexpr int kStates = 2;
  LambScalars s;
  LambNorms sums;

  WEFT_HOST_DEVICE float operator()(float p, float gradient, float* state) {
    adam_moments(gradient, state[0], state[1], s.adam);
    double const u = lamb_direction(p, state[0], state[1], s);
    sums.parameter = std::fma(static_cast<double>(p), static_cast<double>(p), sums.parameter);
    sums.direction = std::fma(u, u, sums.direction);
    return p;
  }
};

/// A rule that makes the step along the direction.
struct LambApplyRule {
  static constexpr int kStates = 2;
  LambScalars s;
  float step_size;

  WEFT_HOST_DEVICE float operator()(float p, float /*gradient*/, float* state) const {
    return std::fma(-step_size, lamb_direction(p, state[0], state[1], s), p);
  }
};

}  // namespace weft::kernels
