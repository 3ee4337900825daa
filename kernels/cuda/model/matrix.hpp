#pragma once

#include <cstdint>

#include "kernels/cuda/chunk.hpp"
#include "kernels/cuda/groups.hpp"
#include "kernels/cuda/lanes.hpp"

namespace weft::kernels::cuda {

// Matrices are row-major, of f32, bf16 or f16 each, computed in f32; vectors (weights, biases) likewise. Outputs may be
// their operation's input of the same place.

WEFT_KERNEL inline Array row_of(TensorPointer const& matrix, std::uint64_t row, std::uint32_t width) {
  return Array::from(matrix.data, matrix.type, row * width);
}

template <int kCount>
WEFT_KERNEL Lanes<kCount> load(Array const& array, std::uint32_t i) {
  return widen(array.template load<kCount>(i), array.type);
}

/// kCount elements of a vector, zeros where there is none.
template <int kCount>
WEFT_KERNEL Lanes<kCount> load_or_zero(TensorPointer const& vector, std::uint32_t i) {
  if (vector.data == nullptr) return {};
  return load<kCount>(Array::from(vector.data, vector.type, 0), i);
}

}  // namespace weft::kernels::cuda
