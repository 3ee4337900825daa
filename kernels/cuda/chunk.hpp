#pragma once

#include <cstdint>

#include "kernels/cuda/block.hpp"
#include "weft/data_type.hpp"

namespace weft::kernels::cuda {

/// Elements that a block works on: enough to repay the start of a block, and few enough that the last blocks of a
/// launch do not keep most of the chip waiting. 1 G elements are 80 rounds of an H100. A multiple of kStateBlock.
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

/// A number that is known when a kernel is launched, or that the kernel reads when it runs.
struct Scalar {
  float value = 1;
  float const* at = nullptr;  ///< in device memory; if not null, it is used instead of `value`

  [[nodiscard]] WEFT_KERNEL float get() const { return at != nullptr ? *at : value; }
};

}  // namespace weft::kernels::cuda
