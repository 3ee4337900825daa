#pragma once

#include <cstddef>
#include <span>

#include "weft/bucket_plan.hpp"

namespace weft {

// The rules that every plan keeps to, however it chooses its buckets. All functions throw Error{invalid_argument}.

/// Checks that `order` is a permutation of the specs' indices, and that there can be so many `shards`.
void check_layout(std::span<TensorSpec const> specs, std::span<std::size_t const> order, std::size_t shards);

/// Checks that both parts are finite and not below 0.
void check_cost(TransferCost const& cost);

/// The elements of `spec`, rounded up to whole cache lines. `tensor` is its number, for errors.
[[nodiscard]] std::size_t padded_count(std::size_t tensor, TensorSpec const& spec);

/// Rounds a bucket up to whole cache lines for each of `shards` equal parts.
void pad(Bucket& bucket, std::size_t shards);

}  // namespace weft
