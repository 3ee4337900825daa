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

/// What sending a bucket takes: a fixed part and one for each byte, both finite and not below 0.
struct TransferCost {
  double seconds = 0;
  double seconds_per_byte = 0;

  friend bool operator==(TransferCost const&, TransferCost const&) = default;
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

  /// Of all ways to cut `order` into buckets of one dtype each, one whose last bucket arrives first, where buckets
  /// travel one after the other, none before its last tensor is ready:
  ///   f(j) = min over i < j of max(f(i), ready(j)) + cost.seconds + cost.seconds_per_byte · bytes(i..j]
  /// f(j): when the first j tensors have arrived; ready(j): when the last of them is; bytes: with all padding. A bucket
  /// without elements is not sent and costs nothing. Of equally good ends of the last bucket's predecessor the one with
  /// the fewest buckets before it, of those the latest. `ready[t]`: when tensor t has its gradient, in seconds from any
  /// moment that is common to all. At most O(n²), less where tensors become ready while others travel.
  /// @throws Error{invalid_argument} as build() does, and for times or costs that are not finite or costs below 0.
  [[nodiscard]] static BucketPlan optimal(std::span<TensorSpec const> specs, std::span<std::size_t const> order,
                                          std::span<double const> ready, TransferCost const& cost,
                                          std::size_t shards = 1);

  friend bool operator==(BucketPlan const&, BucketPlan const&) = default;
};

}  // namespace weft
