#pragma once

#include <cstdint>

#include "kernels/cuda/chunk.hpp"
#include "kernels/cuda/groups.hpp"
#include "kernels/cuda/lanes.hpp"

namespace weft::kernels::cuda {

// Matrices are row-major, of f32, bf16 or f16 each, computed in f32; vectors (weights, biases) likewise. Outputs may be
// their operation's input of the same place.

/// Elements that a thread takes at a time: 16 bytes of 16-bit floats.
inline constexpr int kGroup = 8;

WEFT_KERNEL inline Array row_of(TensorPointer const& matrix, std::uint64_t row, std::uint32_t width) {
  return Array::from(matrix.data, matrix.type, row * width);
}

template <int kCount>
WEFT_KERNEL Lanes<kCount> load(Array const& array, std::uint32_t i) {
  return widen(array.template load<kCount>(i), array.type);
}

/// kCount elements of a vector, `absent` where there is none.
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

/// A tensor's type, as with_constant_type() knows it.
template <DataType kType>
struct ConstantType {
  WEFT_KERNEL constexpr DataType operator()(TensorPointer const& /*tensor*/) const { return kType; }
};
struct TypeOfTensor {
  WEFT_KERNEL DataType operator()(TensorPointer const& tensor) const { return tensor.type; }
};

/// run(type_of), where type_of(tensor) is a constant if all the tensors are of one `type` that is common: instructions
/// for other types are left out then.
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

/// A thread's groups of a row that is passed over more than once: as many as fit stay in registers as they are stored,
/// what is beyond is read again.
template <unsigned kThreads>
class RowShare {
 public:
  WEFT_KERNEL void load_first(Array const& row, unsigned thread, std::uint32_t width) {
    WEFT_UNROLL for (unsigned h = 0; h < kHeld; ++h) {
      std::uint32_t const i = (h * kThreads + thread) * kGroup;
      if (i + kGroup <= width) held_[h] = row.load<kGroup>(i);
    }
  }

  /// f(Lanes of some elements, the first one's index), for all of the thread's.
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
