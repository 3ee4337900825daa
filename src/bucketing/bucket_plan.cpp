#include "weft/bucket_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "bucketing/bucket_layout.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

void check_limits(BucketLimits const& limits) {
  if (limits.first_bytes == 0 || limits.bytes == 0 || limits.last_bytes == 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "bucket plan: caps must be at least 1 byte, got first_bytes={} bytes={} last_bytes={}; 1 puts every tensor "
            "into a bucket of its own",
            limits.first_bytes, limits.bytes, limits.last_bytes));
  }
}

std::size_t saturating_sum(std::size_t a, std::size_t b) {
  return a + std::min(b, std::numeric_limits<std::size_t>::max() - a);
}

bool fits(Bucket const& bucket, TensorSpec const& spec, std::size_t padded, std::size_t cap) {
  std::size_t const cap_count = cap / size_of(spec.dtype);
  return bucket.dtype == spec.dtype &&
         (padded == 0 || (bucket.count <= cap_count && padded <= cap_count - bucket.count));
}

}  // namespace

BucketPlan BucketPlan::build(std::span<TensorSpec const> specs, std::span<std::size_t const> order,
                             BucketLimits const& limits, std::size_t shards) {
  check_limits(limits);
  check_layout(specs, order, shards);
  std::size_t remaining = 0;  // bytes from the current tensor on
  for (std::size_t const tensor : order) {
    remaining = saturating_sum(remaining, padded_count(tensor, specs[tensor]) * size_of(specs[tensor].dtype));
  }
  BucketPlan plan;
  std::size_t cap = limits.first_bytes;
  for (std::size_t const tensor : order) {
    TensorSpec const& spec = specs[tensor];
    std::size_t const padded = padded_count(tensor, spec);
    // A bucket that holds only empty tensors accepts any tensor of its type: closing it would gain nothing.
    bool const open =
        !plan.buckets.empty() && (fits(plan.buckets.back(), spec, padded, cap) ||
                                  (plan.buckets.back().count == 0 && plan.buckets.back().dtype == spec.dtype));
    if (!open) {
      if (!plan.buckets.empty()) cap = std::min(limits.bytes, std::max(limits.last_bytes, remaining / 2));
      plan.buckets.push_back({spec.dtype, 0, {}});
    }
    Bucket& bucket = plan.buckets.back();
    bucket.slots.push_back({tensor, bucket.count, spec.count});
    bucket.count += padded;
    remaining -= std::min(remaining, padded * size_of(spec.dtype));
  }
  for (Bucket& bucket : plan.buckets) pad(bucket, shards);
  return plan;
}

}  // namespace weft
