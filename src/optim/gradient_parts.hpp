#pragma once

#include "weft/gradients.hpp"

namespace weft {

/// What one rank adds to a norm over all ranks. For l2 both numbers are summed (`norm` is a sum of squares); else the
/// largest of each counts.
struct NormParts {
  double norm = 0;
  double not_finite = 0;
};

/// The parts of one gradient of f32, bf16 or f16, on the CPU.
[[nodiscard]] NormParts parts_of(BufferView const& gradient, NormType type, float factor);
void add(NormParts& parts, NormParts const& more, NormType type) noexcept;
[[nodiscard]] NormParts measure_parts(std::span<BufferView const> gradients, NormType type, float factor);
[[nodiscard]] GradientNorm norm_of(NormParts const& parts, NormType type);
/// g ← g · clip_factor(), where that changes anything.
void scale_by_clip(std::span<BufferView const> gradients, GradientNorm const& norm, double max_norm);

}  // namespace weft
