#pragma once

#include <array>

#include "collectives/p2p/steps.hpp"
#include "collectives/p2p/trees.hpp"

namespace weft::p2p {

using Trees = std::array<TreePlace, 2>;
using Halves = std::array<Piece, 2>;  ///< what each tree carries, in grains

/// For trees of `nodes` nodes. All is the first tree's where a node would have the same parent in both, whose messages
/// could not be told apart: of one node, and of an odd number in the order of ranks.
[[nodiscard]] Halves halve(std::size_t count, std::size_t grain, int nodes, bool keep_order);

/// Combines `total`, partial results of all ranks, upwards: the roots then have their half. Other ranks' is spoilt.
void reduce_up(Context& context, Combiner const& combiner, Trees const& trees, Halves const& halves, std::byte* total);
/// Sends each root's half of `buffer` to all.
void send_down(Context& context, Trees const& trees, Halves const& halves, void* buffer, std::size_t grain);

/// What sending all up, or down, takes at most.
[[nodiscard]] double double_tree_cost(CostQuestion const& question, int nodes);

}  // namespace weft::p2p
