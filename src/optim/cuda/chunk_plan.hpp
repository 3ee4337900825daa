#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cuda/chunk.hpp"

namespace weft::cuda {

/// Consecutive chunks.
struct ChunkRange {
  std::size_t first = 0;
  std::size_t count = 0;

  friend bool operator==(ChunkRange const&, ChunkRange const&) = default;
};

/// How a launch divides many tensors among its blocks.
struct ChunkPlan {
  std::vector<kernels::cuda::Chunk> chunks;  ///< tensor by tensor, in the order of each tensor's elements
  std::vector<ChunkRange> of_tensor;         ///< empty for a tensor without elements
};

/// `counts`: elements of each tensor. @throws Error{invalid_argument} for more chunks or tensors than a launch can
/// have.
[[nodiscard]] ChunkPlan plan_chunks(std::span<std::size_t const> counts);

}  // namespace weft::cuda
