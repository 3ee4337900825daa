#pragma once

#include <cstdint>

#include "kernels/cuda/block.hpp"
#include "weft/data_type.hpp"

namespace weft::kernels::cuda {

/// Elements that a block works on. Enough to repay a block's start, few enough that the last blocks of a launch do not
/// run on while most of the chip is idle: 1 G elements are 80 rounds of an H100. A multiple of kStateBlock.
inline constexpr std::uint32_t kChunk = 16384;

/// Elements [first, first + count) of tensor `tensor` of a table.
struct Chunk {
  std::uint64_t first;
  std::uint32_t tensor;
  std::uint32_t count;
};

/// Where a tensor of f32, bf16 or f16 is.
struct TensorPointer {
  void* data;
  DataType type;
};

/// A number known when a kernel is launched, or read when it runs.
struct Scalar {
  float value = 1;
  float const* at = nullptr;  ///< in device memory; where not null, `value` is not used

  [[nodiscard]] WEFT_KERNEL float get() const { return at != nullptr ? *at : value; }
};

}  // namespace weft::kernels::cuda
