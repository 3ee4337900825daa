#pragma once

#include "weft/gradients.hpp"

namespace weft {

/// What ranks combine to a norm: squares are summed, magnitudes compared, and `not_finite` either.
struct NormParts {
  double norm = 0;
  double not_finite = 0;
};

/// Of one gradient, of f32, bf16 or f16 on the CPU.
[[nodiscard]] NormParts parts_of(BufferView const& gradient, NormType type, float factor);
void add(NormParts& parts, NormParts const& more, NormType type) noexcept;
[[nodiscard]] NormParts measure_parts(std::span<BufferView const> gradients, NormType type, float factor);
[[nodiscard]] GradientNorm norm_of(NormParts const& parts, NormType type);
/// g ← g · clip_factor(), where that changes anything.
void scale_by_clip(std::span<BufferView const> gradients, GradientNorm const& norm, double max_norm);

}  // namespace weft
