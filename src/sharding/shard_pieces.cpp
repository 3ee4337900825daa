#include "sharding/shard_pieces.hpp"

#include <algorithm>
#include <utility>

namespace weft {

namespace {

/// What of `slot` lies in rank `rank`'s part of its bucket: elements [first, last) from the bucket's start.
std::pair<std::size_t, std::size_t> owned(BucketSlot const& slot, std::size_t part, std::size_t rank) noexcept {
  std::size_t const first = std::max(part * rank, slot.offset);
  return {first, std::max(first, std::min(part * (rank + 1), slot.offset + slot.count))};
}

}  // namespace

std::vector<ShardPiece> pieces_of(BucketPlan const& plan, int rank, int ranks) {
  std::vector<ShardPiece> pieces;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    Bucket const& bucket = plan.buckets[b];
    std::size_t const part = bucket.count / static_cast<std::size_t>(ranks);
    std::size_t const start = part * static_cast<std::size_t>(rank);
    for (BucketSlot const& slot : bucket.slots) {
      auto const [first, last] = owned(slot, part, static_cast<std::size_t>(rank));
      if (first < last) pieces.push_back({slot.tensor, b, first - slot.offset, last - first, first - start});
    }
  }
  return pieces;
}

std::vector<std::size_t> counts_of(BucketPlan const& plan, std::size_t tensor, int ranks) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), 0);
  for (Bucket const& bucket : plan.buckets) {
    for (BucketSlot const& slot : bucket.slots) {
      if (slot.tensor != tensor) continue;
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        auto const [first, last] = owned(slot, bucket.count / counts.size(), rank);
        counts[rank] = last - first;
      }
    }
  }
  return counts;
}

}  // namespace weft
