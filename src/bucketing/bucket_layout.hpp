#pragma once

#include <cstddef>
#include <span>

#include "weft/bucket_plan.hpp"

namespace weft {

// What every plan keeps to, however it chooses its buckets. All throw Error{invalid_argument}.

/// `order` is a permutation of the specs' indices, and so many `shards` can be.
void check_layout(std::span<TensorSpec const> specs, std::span<std::size_t const> order, std::size_t shards);

/// Both parts are finite and not below 0.
void check_cost(TransferCost const& cost);

/// Elements of `spec` (tensor `tensor`, for errors) rounded up to whole cache lines.
[[nodiscard]] std::size_t padded_count(std::size_t tensor, TensorSpec const& spec);

/// Rounds a bucket up to whole cache lines for each of `shards` equal parts.
void pad(Bucket& bucket, std::size_t shards);

}  // namespace weft
