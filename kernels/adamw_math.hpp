#pragma once

#include <cmath>

#ifdef __CUDACC__
#define WEFT_HOST_DEVICE __host__ __device__
#else
#define WEFT_HOST_DEVICE
#endif

namespace weft::kernels {

/// Scalars of one AdamW step, prepared once per step on the host; the formula is in weft/adamw.hpp.
struct AdamWScalars {
  float decay;           ///< 1 − lr·weight_decay
  float beta1, beta2;    ///< the moments' decay rates
  float step_size;       ///< lr / (1 − β1^t)
  float inv_sqrt_bias2;  ///< 1 / √(1 − β2^t)
  float eps;
  float one_minus_beta1, one_minus_beta2;  ///< rounded once from double
};

/// The scalars of step `step` (from 1), computed in double.
inline AdamWScalars adamw_scalars(double lr, double beta1, double beta2, double eps, double weight_decay,
                                  long long step) {
  double const bias1 = 1.0 - std::pow(beta1, static_cast<double>(step));
  double const bias2 = 1.0 - std::pow(beta2, static_cast<double>(step));
  return {static_cast<float>(1.0 - lr * weight_decay),
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
WEFT_HOST_DEVICE inline void adamw_element(float& parameter, float gradient, float& exp_avg, float& exp_avg_sq,
                                           AdamWScalars const& s) {
  using std::fma;
  using std::sqrt;
  float const m = fma(s.one_minus_beta1, gradient - exp_avg, exp_avg);
  float const v = fma(s.beta2, exp_avg_sq, (s.one_minus_beta2 * gradient) * gradient);
  float const denominator = fma(sqrt(v), s.inv_sqrt_bias2, s.eps);
  parameter = fma(-s.step_size, m / denominator, parameter * s.decay);
  exp_avg = m;
  exp_avg_sq = v;
}

}  // namespace weft::kernels
