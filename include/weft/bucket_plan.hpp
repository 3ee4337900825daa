#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/data_type.hpp"

namespace weft {

/// A tensor to be bucketed.
struct TensorSpec {
  std::size_t count = 0;  ///< elements
  DataType dtype = DataType::f32;

  friend bool operator==(TensorSpec const&, TensorSpec const&) = default;
};

struct BucketLimits {
  std::size_t first_bytes = std::size_t{1} << 20;  ///< cap of the first bucket: small, so communication starts early
  std::size_t bytes = std::size_t{25} << 20;       ///< cap of every other bucket
  /// Towards the end of the order a bucket takes at most half of what is left, but may always take this much: nothing
  /// is left to hide the last bucket behind. Set it to `bytes` for equal buckets to the end.
  std::size_t last_bytes = std::size_t{1} << 20;

  friend bool operator==(BucketLimits const&, BucketLimits const&) = default;
};

/// One tensor's place inside its bucket.
struct BucketSlot {
  std::size_t tensor = 0;  ///< index into the specs
  std::size_t offset = 0;  ///< elements from the bucket's start; 64-byte aligned
  std::size_t count = 0;   ///< elements

  friend bool operator==(BucketSlot const&, BucketSlot const&) = default;
};

struct Bucket {
  DataType dtype = DataType::f32;
  std::size_t count = 0;  ///< elements, padding included: a multiple of shards × 64 bytes
  std::vector<BucketSlot> slots;

  [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(dtype); }
  friend bool operator==(Bucket const&, Bucket const&) = default;
};

/// Which tensor goes into which bucket, in launch order. A pure function of its inputs, so that ranks agree by agreeing
/// on those.
struct BucketPlan {
  std::vector<Bucket> buckets;

  /// Walks `order` (a permutation of the spec indices, the order gradients become ready in) and closes a bucket where
  /// the next tensor would exceed its cap (padding counts) or has another dtype; a tensor larger than the cap has a
  /// bucket of its own. Every tensor is placed once, one without elements takes no space. A cap of 1 byte gives every
  /// non-empty tensor its own bucket. `shards` equal parts of a bucket are whole cache lines each; the padding at its
  /// end that this takes does not count against the cap.
  /// @throws Error{invalid_argument} when `order` is no permutation, a cap or `shards` is 0, a dtype is unknown or the
  /// sizes overflow.
  [[nodiscard]] static BucketPlan build(std::span<TensorSpec const> specs, std::span<std::size_t const> order,
                                        BucketLimits const& limits = {}, std::size_t shards = 1);

  friend bool operator==(BucketPlan const&, BucketPlan const&) = default;
};

}  // namespace weft
