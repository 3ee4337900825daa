#pragma once

#include <cstdint>

#include "kernels/cuda/chunk.hpp"
#include "kernels/cuda/groups.hpp"
#include "kernels/cuda/lanes.hpp"

namespace weft::kernels::cuda {

// Matrices are row-major, of f32, bf16 or f16 each; vectors (weights, biases) have these types, too. Kernels compute in
// f32. An output may be the same memory as an input of its operation.

/// Elements that a thread takes at a time: 16 bytes of 16-bit floats.
inline constexpr int kGroup = 8;

WEFT_KERNEL inline Array row_of(TensorPointer const& matrix, std::uint64_t row, std::uint32_t width) {
  return Array::from(matrix.data, matrix.type, row * width);
}

template <int kCount>
WEFT_KERNEL Lanes<kCount> load(Array const& array, std::uint32_t i) {
  return widen(array.template load<kCount>(i), array.type);
}

/// kCount elements of a vector; `absent` for each if the vector is null.
template <int kCount>
WEFT_KERNEL Lanes<kCount> load_or(TensorPointer const& vector, std::uint32_t i, float absent) {
  if (vector.data != nullptr) return load<kCount>(Array::from(vector.data, vector.type, 0), i);
  Lanes<kCount> lanes;
  WEFT_UNROLL for (float& value : lanes.x) value = absent;
  return lanes;
}
template <int kCount>
WEFT_KERNEL Lanes<kCount> load_or_zero(TensorPointer const& vector, std::uint32_t i) {
  return load_or<kCount>(vector, i, 0);
}

/// The two kinds of type_of that with_constant_type() passes: a constant type, or the tensor's own.
template <DataType kType>
struct ConstantType {
  WEFT_KERNEL constexpr DataType operator()(TensorPointer const& /*tensor*/) const { return kType; }
};
struct TypeOfTensor {
  WEFT_KERNEL DataType operator()(TensorPointer const& tensor) const { return tensor.type; }
};

/// Calls run(type_of). If all tensors have the same common `type`, type_of(tensor) is a constant, so that the compiler
/// leaves out the instructions for other types.
template <typename Run>
WEFT_KERNEL void with_constant_type(DataType type, bool all_of_it, Run const& run) {
  if (all_of_it && type == DataType::bf16) {
    run(ConstantType<DataType::bf16>{});
  } else if (all_of_it && type == DataType::f32) {
    run(ConstantType<DataType::f32>{});
  } else {
    run(TypeOfTensor{});
  }
}

/// A thread's groups of a row that is read more than once. The first kHeld groups stay in registers, in their stored
/// form; the rest is read again.
template <unsigned kThreads>
class RowShare {
 public:
  WEFT_KERNEL void load_first(Array const& row, unsigned thread, std::uint32_t width) {
    WEFT_UNROLL for (unsigned h = 0; h < kHeld; ++h) {
      std::uint32_t const i = (h * kThreads + thread) * kGroup;
      if (i + kGroup <= width) held_[h] = row.load<kGroup>(i);
    }
  }

  /// Calls f(Lanes of some elements, index of the first) for all elements of the thread.
  template <typename F>
  WEFT_KERNEL void each(Array const& row, unsigned thread, std::uint32_t width, F const& f) const {
    WEFT_UNROLL for (unsigned h = 0; h < kHeld; ++h) {
      std::uint32_t const i = (h * kThreads + thread) * kGroup;
      if (i + kGroup <= width) f(widen(held_[h], row.type), i);
    }
    std::uint32_t const groups = width / kGroup;
    for (std::uint32_t group = kHeld * kThreads + thread; group < groups; group += kThreads) {
      f(load<kGroup>(row, group * kGroup), group * kGroup);
    }
    for (std::uint32_t i = groups * kGroup + thread; i < width; i += kThreads) f(load<1>(row, i), i);
  }

 private:
  static constexpr unsigned kHeld = 4;
  RawLanes<kGroup> held_[kHeld];
};

}  // namespace weft::kernels::cuda
