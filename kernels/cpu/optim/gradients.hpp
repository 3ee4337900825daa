#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/data_type.hpp"

namespace weft::kernels {

// These functions work on f32, bf16 or f16 in one pass. Any alignment. They are thread-safe and do not allocate.

struct GradientMeasure {
  double sum_of_squares = 0;
  float largest = 0;  ///< absolute value; unspecified where not finite
  bool finite = true;
};

/// Measures factor·g. The bits depend on where a range begins and ends, not on alignment. If the squares of finite
/// elements exceed f32, it takes a second pass.
[[nodiscard]] GradientMeasure measure_gradient(void const* data, std::size_t count, DataType type, float factor);

/// measure_gradient()'s loads without its arithmetic, for benchmarks: the bits of all f32 values or-ed together.
[[nodiscard]] std::uint32_t gradient_traffic(float const* data, std::size_t count);

/// x ← factor·x, rounded to nearest even.
void scale(void* data, std::size_t count, DataType type, float factor);
/// The same; returns false if an element was not finite.
[[nodiscard]] bool scale_and_check(void* data, std::size_t count, DataType type, float factor);
/// x ← x clamped to [−limit, limit]; NaN stays.
void clamp(void* data, std::size_t count, DataType type, float limit);
/// to ← from, rounded to nearest even; the arrays do not overlap.
void convert(void const* from, DataType from_type, void* to, DataType to_type, std::size_t count);

}  // namespace weft::kernels
