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

/// A range of one parameter, and what a step reads and writes beside it. Any alignment; the arrays do not overlap.
struct UpdateArrays {
  void* parameter = nullptr;
  DataType parameter_type = DataType::f32;  ///< f32, bf16 or f16
  float* master = nullptr;  ///< what is computed with; `parameter` gets it rounded. Null: `parameter` is
  void* gradient = nullptr;
  DataType gradient_type = DataType::f32;  ///< f32, bf16 or f16
  std::array<float*, 3> state{};           ///< as many as the rule has
};

/// What happens to gradients on the way.
struct GradientUse {
  static constexpr float kNoLimit = std::numeric_limits<float>::infinity();

  float factor = 1;        ///< multiplies them: 1 / loss scale, a clip factor, −1 to maximize
  bool zero = false;       ///< leaves zeros behind
  float limit = kNoLimit;  ///< multiplied, they are brought within [−limit, limit]; NaN stays
};

// One pass over memory each. An element's bits depend neither on count nor on alignment. Thread-safe, do not allocate.

/// state: exp_avg, exp_avg_sq, and with amsgrad max_exp_avg_sq.
void adam(UpdateArrays const& arrays, std::size_t count, AdamScalars const& scalars, bool amsgrad,
          GradientUse const& use);
/// state: momentum_buffer, where has_momentum.
void sgd(UpdateArrays const& arrays, std::size_t count, SgdScalars const& scalars, GradientUse const& use);
/// state: exp_avg.
void lion(UpdateArrays const& arrays, std::size_t count, LionScalars const& scalars, GradientUse const& use);
/// state: sum.
void adagrad(UpdateArrays const& arrays, std::size_t count, AdagradScalars const& scalars, GradientUse const& use);

/// First half: moments (state: exp_avg, exp_avg_sq) and norms. Leaves the parameter.
[[nodiscard]] LambNorms lamb_moments(UpdateArrays const& arrays, std::size_t count, LambScalars const& scalars,
                                     GradientUse const& use);
/// Second half: p ← p − lr_ratio·direction. Does not touch the gradient.
void lamb_apply(UpdateArrays const& arrays, std::size_t count, LambScalars const& scalars, float lr_ratio);

/// Adam's loads and stores without arithmetic, for measuring: the bandwidth that adam() is compared with. Contents
/// change places.
void adam_traffic(UpdateArrays const& arrays, std::size_t count, GradientUse const& use);

}  // namespace weft::kernels
