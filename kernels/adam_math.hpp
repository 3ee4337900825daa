#pragma once

#include <cmath>

#ifdef __CUDACC__
#define WEFT_HOST_DEVICE __host__ __device__
#else
#define WEFT_HOST_DEVICE
#endif

namespace weft::kernels {

/// Scalars of one step of Adam, AdamW or Lamb, prepared once per step on the host; the formulas are in
/// weft/optimizer_options.hpp.
struct AdamScalars {
  float decay;           ///< multiplies the parameter before all else: AdamW's 1 − lr·weight_decay
  float l2;              ///< adds so much of the parameter to the gradient: Adam's weight_decay
  float beta1, beta2;    ///< the moments' decay rates
  float step_size;       ///< lr / (1 − β1^t)
  float inv_sqrt_bias2;  ///< 1 / √(1 − β2^t)
  float eps;
  float one_minus_beta1, one_minus_beta2;  ///< rounded once from double
};

/// How weight decay enters.
enum class Decay { decoupled, l2 };

/// The scalars of step `step` (from 1), computed in double.
inline AdamScalars adam_scalars(double lr, double beta1, double beta2, double eps, double weight_decay, Decay how,
                                long long step) {
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

/// One element of one step: the arithmetic that the CUDA kernel runs as written and the SIMD kernel mirrors operation
/// by operation.
WEFT_HOST_DEVICE inline void adam_element(float& parameter, float gradient, float& exp_avg, float& exp_avg_sq,
                                          AdamScalars const& s) {
  using std::fma;
  using std::sqrt;
  float const g = fma(s.l2, parameter, gradient);
  float const m = fma(s.one_minus_beta1, g - exp_avg, exp_avg);
  float const v = fma(s.beta2, exp_avg_sq, (s.one_minus_beta2 * g) * g);
  float const denominator = fma(sqrt(v), s.inv_sqrt_bias2, s.eps);
  parameter = fma(-s.step_size, m / denominator, parameter * s.decay);
  exp_avg = m;
  exp_avg_sq = v;
}

}  // namespace weft::kernels
