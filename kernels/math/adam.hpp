#pragma once

#include <cmath>

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

/// Scalars of one step of Adam, AdamW or Lamb, prepared once per step; the formulas are in
/// weft/optimizer_options.hpp.
struct AdamScalars {
  float decay;           ///< multiplies the parameter first: AdamW's 1 − lr·weight_decay
  float l2;              ///< this times the parameter is added to the gradient: Adam's weight_decay
  float beta1, beta2;    ///< the moments' decay rates
  float step_size;       ///< lr / (1 − β1^t)
  float inv_sqrt_bias2;  ///< 1 / √(1 − β2^t)
  float eps;
  float one_minus_beta1, one_minus_beta2;  ///< rounded once from double
};

/// How weight decay is applied: to the parameter (AdamW), or through the gradient (Adam).
enum class Decay { decoupled, l2 };

/// The scalars of step `step` (from 1), computed in double.
WEFT_HOST_DEVICE inline AdamScalars adam_scalars(double lr, double beta1, double beta2, double eps, double weight_decay,
                                                 Decay how, long long step) {
  double const bias1 = 1.0 - std::pow(beta1, static_cast<double>(step));
  double const bias2 = 1.0 - std::pow(beta2, static_cast<double>(step));
  bool const decoupled = how == Decay::decoupled;
  return {decoupled ? static_cast<float>(1.0 - lr * weight_decay) : 1.0F,
          decoupled ? 0.0F : static_cast<float>(weight_decay),
          static_cast<float>(beta1),
          static_cast<float>(beta2),
          static_cast<float>(lr / bias1),
          static_cast<float>(1.0 / std::sqrt(bias2)),
          static_cast<float>(eps),
          static_cast<float>(1.0 - beta1),
          static_cast<float>(1.0 - beta2)};
}

/// Updates the moments m and v of one element.
WEFT_HOST_DEVICE inline void adam_moments(float g, float& m, float& v, AdamScalars const& s) {
  m = std::fma(s.one_minus_beta1, g - m, m);
  v = std::fma(s.beta2, v, (s.one_minus_beta2 * g) * g);
}

// A rule is one element's arithmetic: it takes parameter, gradient and kStates states, changes the states and returns
// the new parameter. CUDA kernels call it; the SIMD kernels mirror it operation by operation.

/// state: exp_avg, exp_avg_sq, and with amsgrad max_exp_avg_sq.
template <bool kAmsgrad>
struct AdamRule {
  static constexpr int kStates = kAmsgrad ? 3 : 2;
  AdamScalars s;

  WEFT_HOST_DEVICE float operator()(float p, float gradient, float* state) const {
    adam_moments(std::fma(s.l2, p, gradient), state[0], state[1], s);
    float v = state[1];
    if constexpr (kAmsgrad) {
      v = v < state[2] ? state[2] : v;  // keeps v if it is NaN
      state[2] = v;
    }
    float const denominator = std::fma(std::sqrt(v), s.inv_sqrt_bias2, s.eps);
    return std::fma(-s.step_size, state[0] / denominator, p * s.decay);
  }
};

}  // namespace weft::kernels
