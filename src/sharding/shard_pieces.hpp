#pragma once

#include <cstddef>
#include <vector>

#include "weft/bucket_plan.hpp"

namespace weft {

/// What one rank owns of a tensor: elements [first, first + count) of it.
struct ShardPiece {
  std::size_t tensor = 0;
  std::size_t bucket = 0;
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t offset = 0;  ///< elements from the start of the rank's part of the bucket

  friend bool operator==(ShardPiece const&, ShardPiece const&) = default;
};

/// The intersections of rank `rank`'s part of each bucket with the tensors in it, in plan order; none is empty. Pure.
/// The plan was made for `ranks` shards.
[[nodiscard]] std::vector<ShardPiece> pieces_of(BucketPlan const& plan, int rank, int ranks);
/// How many elements of tensor `tensor` each of `ranks` owns.
[[nodiscard]] std::vector<std::size_t> counts_of(BucketPlan const& plan, std::size_t tensor, int ranks);

}  // namespace weft
