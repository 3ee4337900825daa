#include "optim/cuda/chunk_plan.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "weft/error.hpp"

namespace weft::cuda {

using kernels::cuda::kChunk;

ChunkPlan plan_chunks(std::span<std::size_t const> counts) {
  std::size_t total = 0;
  for (std::size_t const count : counts) total += count / kChunk + (count % kChunk != 0 ? 1 : 0);
  constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();  // blocks of a launch
  if (total > kMost || counts.size() > kMost) {
    throw Error(ErrorCode::invalid_argument, std::to_string(counts.size()) + " tensors of " + std::to_string(total) +
                                                 " chunks; a launch has at most " + std::to_string(kMost));
  }
  ChunkPlan plan;
  plan.chunks.reserve(total);
  plan.of_tensor.reserve(counts.size());
  for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
    std::size_t const first_chunk = plan.chunks.size();
    for (std::size_t first = 0; first < counts[tensor]; first += kChunk) {
      auto const count = static_cast<std::uint32_t>(std::min<std::size_t>(kChunk, counts[tensor] - first));
      plan.chunks.push_back({first, static_cast<std::uint32_t>(tensor), count});
    }
    plan.of_tensor.push_back({first_chunk, plan.chunks.size() - first_chunk});
  }
  return plan;
}

}  // namespace weft::cuda
