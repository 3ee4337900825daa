#pragma once

#include <cstddef>

namespace weft::kernels {

/// Scalars of one AdamW step, prepared once per step on the host; shared with the CUDA kernel. See weft/adamw.hpp for
/// the formula.
struct AdamWScalars {
  float decay;  ///< 1 − lr·weight_decay
  float beta1, beta2;
  float step_size;       ///< lr / (1 − β1^t)
  float inv_sqrt_bias2;  ///< 1 / √(1 − β2^t)
  float eps;
};

/// One pass over four f32 arrays of `count` elements: reads gradient, updates the other three. Any alignment.
/// Thread-safe.
void adamw(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq, std::size_t count,
           AdamWScalars const& scalars);

/// The same loads and stores without arithmetic: the bandwidth adamw() is measured against.
void adamw_traffic(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq, std::size_t count);

}  // namespace weft::kernels
