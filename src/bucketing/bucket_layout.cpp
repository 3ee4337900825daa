#include "bucketing/bucket_layout.hpp"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "weft/error.hpp"

namespace weft {
namespace {

// Tensors start on cache lines, so that no line is written by two of them and SIMD loads are aligned.
constexpr std::size_t kAlignment = 64;

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

}  // namespace

void check_layout(std::span<TensorSpec const> specs, std::span<std::size_t const> order, std::size_t shards) {
  constexpr std::size_t kMostShards = std::size_t{1} << 32;
  if (shards == 0 || shards > kMostShards) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bucket plan: {} shards; from 1 to {} can be", shards, kMostShards));
  }
  check_order(specs, order);
}

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

}  // namespace weft
