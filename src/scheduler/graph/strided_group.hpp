#pragma once

#include <optional>
#include <string>

#include "weft/op_graph.hpp"

namespace weft {

/// Ranks [0, ranks) in sets of `size` that are `stride` apart: with 8 ranks, size 2 and stride 4 these are {0, 4}, {1,
/// 5}, {2, 6}, {3, 7}. A mesh of ranks is cut like this along one dimension.
struct StridedSets {
  int ranks = 1;
  int size = 1;
  int stride = 1;
};

/// @throws Error{invalid_argument} naming the group where ranks is no multiple of size x stride, or one is below 1.
[[nodiscard]] OpGroup strided_group(std::string name, StridedSets const& sets);

/// The group's sets as StridedSets; empty where they are none, or in another order.
[[nodiscard]] std::optional<StridedSets> strided_sets(OpGroup const& group);

}  // namespace weft
