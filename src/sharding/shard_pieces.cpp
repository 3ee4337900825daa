#include "sharding/shard_pieces.hpp"

#include <algorithm>

namespace weft {

std::vector<ShardPiece> pieces_of(BucketPlan const& plan, int rank, int ranks) {
  std::vector<ShardPiece> pieces;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    Bucket const& bucket = plan.buckets[b];
    std::size_t const part = bucket.count / static_cast<std::size_t>(ranks);
    std::size_t const start = part * static_cast<std::size_t>(rank);
    for (BucketSlot const& slot : bucket.slots) {
      std::size_t const first = std::max(start, slot.offset);
      std::size_t const last = std::min(start + part, slot.offset + slot.count);
      if (first < last) pieces.push_back({slot.tensor, b, first - slot.offset, last - first, first - start});
    }
  }
  return pieces;
}

}  // namespace weft
