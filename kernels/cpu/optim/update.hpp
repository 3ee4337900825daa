#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include "kernels/math/adagrad.hpp"
#include "kernels/math/adam.hpp"
#include "kernels/math/lamb.hpp"
#include "kernels/math/lion.hpp"
#include "kernels/math/sgd.hpp"
#include "weft/data_type.hpp"

namespace weft::kernels {

/// A range of one parameter, and what else a step reads and writes. Any alignment; the arrays do not overlap.
struct UpdateArrays {
  void* parameter = nullptr;
  DataType parameter_type = DataType::f32;  ///< f32, bf16 or f16
  float* master = nullptr;                  ///< the f32 copy that is updated, then rounded into `parameter`; null: none
  void* gradient = nullptr;
  DataType gradient_type = DataType::f32;  ///< f32, bf16 or f16
  std::array<float*, 3> state{};           ///< as many as the rule has
};

/// What happens to gradients on the way to a rule.
struct GradientUse {
  static constexpr float kNoLimit = std::numeric_limits<float>::infinity();

  float factor = 1;        ///< multiplies the gradients: 1 / loss scale, a clip factor, −1 to maximize
  bool zero = false;       ///< sets the gradients to zero after reading them
  float limit = kNoLimit;  ///< after the factor, they are clamped to [−limit, limit]; NaN stays
};

// Each function makes one pass over memory, is thread-safe and does not allocate. An element's bits depend neither on
// the count nor on alignment.

/// state: exp_avg, exp_avg_sq, and with amsgrad max_exp_avg_sq.
void adam(UpdateArrays const& arrays, std::size_t count, AdamScalars const& scalars, bool amsgrad,
          GradientUse const& use);
/// state: momentum_buffer, where has_momentum.
void sgd(UpdateArrays const& arrays, std::size_t count, SgdScalars const& scalars, GradientUse const& use);
/// state: exp_avg.
void lion(UpdateArrays const& arrays, std::size_t count, LionScalars const& scalars, GradientUse const& use);
/// state: sum.
void adagrad(UpdateArrays const& arrays, std::size_t count, AdagradScalars const& scalars, GradientUse const& use);

/// First half of Lamb: updates the moments (state: exp_avg, exp_avg_sq) and returns the norms. Does not change the
/// parameter.
[[nodiscard]] LambNorms lamb_moments(UpdateArrays const& arrays, std::size_t count, LambScalars const& scalars,
                                     GradientUse const& use);
/// Second half of Lamb: p ← p − lr_ratio·direction. Does not touch the gradient.
void lamb_apply(UpdateArrays const& arrays, std::size_t count, LambScalars const& scalars, float lr_ratio);

/// Adam's loads and stores without its arithmetic: benchmarks compare adam() with its bandwidth. The arrays' contents
/// change places.
void adam_traffic(UpdateArrays const& arrays, std::size_t count, GradientUse const& use);

}  // namespace weft::kernels
