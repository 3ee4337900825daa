#include "weft/bucket_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "weft/error.hpp"

namespace weft {
namespace {

// Tensors start on cache lines, so that no line is written by two of them and SIMD loads are aligned.
constexpr std::size_t kAlignment = 64;

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

void check_order(std::span<TensorSpec const> specs, std::span<std::size_t const> order) {
  if (order.size() != specs.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucket plan: the order names {} tensors but there are {}; pass each index once",
                            order.size(), specs.size()));
  }
  std::vector<bool> seen(specs.size(), false);
  for (std::size_t position = 0; position < order.size(); ++position) {
    std::size_t const tensor = order[position];
    if (tensor >= specs.size()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("bucket plan: order[{}] is {} but tensors are numbered 0 to {}", position, tensor,
                              specs.size() - 1));
    }
    if (seen[tensor]) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("bucket plan: order[{}] names tensor {} a second time", position, tensor));
    }
    seen[tensor] = true;
  }
}

// Elements of `spec` rounded up to whole cache lines.
std::size_t padded_count(std::size_t tensor, TensorSpec const& spec) {
  if (!is_valid(spec.dtype)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("bucket plan: tensor {} has the unknown data type {}", tensor,
                                                         static_cast<int>(spec.dtype)));
  }
  std::size_t const line = kAlignment / size_of(spec.dtype);
  std::size_t const most = std::numeric_limits<std::ptrdiff_t>::max() / size_of(spec.dtype) - line;
  if (spec.count > most) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucket plan: tensor {} has {} elements of {}, more than can be addressed", tensor,
                            spec.count, to_string(spec.dtype)));
  }
  return (spec.count + line - 1) / line * line;
}

// Whole cache lines for each of `shards` equal parts.
void pad(Bucket& bucket, std::size_t shards) {
  std::size_t const size = size_of(bucket.dtype);
  std::size_t const unit = shards * (kAlignment / size);
  std::size_t const units = bucket.count / unit + (bucket.count % unit != 0 ? 1 : 0);
  if (units > std::numeric_limits<std::ptrdiff_t>::max() / size / unit) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucket plan: a bucket of {} elements of {} cannot be padded to {} shards", bucket.count,
                            to_string(bucket.dtype), shards));
  }
  bucket.count = units * unit;
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
  constexpr std::size_t kMostShards = std::size_t{1} << 32;
  if (shards == 0 || shards > kMostShards) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucket plan: {} shards; from 1 to {} can be", shards, kMostShards));
  }
  check_limits(limits);
  check_order(specs, order);
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
