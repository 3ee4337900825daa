#pragma once

#include <cstddef>

#include "weft/data_type.hpp"

namespace weft::kernels {

/// Error feedback in one pass: c = gradient + residual; wire ← c rounded to `type` (bf16 or f16), to nearest even;
/// residual ← c − wire, which is exact except below f32's smallest values, or 0 if either is not finite. The arrays do
/// not overlap. Any alignment. Thread-safe, does not allocate.
void compress_with_feedback(float const* gradient, float* residual, void* wire, DataType type, std::size_t count);

}  // namespace weft::kernels
