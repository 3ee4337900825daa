#pragma once

#include <array>

#include "collectives/p2p/steps.hpp"
#include "collectives/p2p/trees.hpp"

namespace weft::p2p {

using Trees = std::array<TreePlace, 2>;
using Halves = std::array<Piece, 2>;  ///< what each tree carries, in grains

/// Halves a buffer for trees of `nodes` nodes. The first tree carries all where a node would have the same parent in
/// both trees, since the messages of the two could not be told apart: with one node, and with an odd number in the
/// order of ranks.
[[nodiscard]] Halves halve(std::size_t count, std::size_t grain, int nodes, bool keep_order);

/// Combines `total`, the partial results of every rank, upwards. Then each root has its half; `total` of other ranks is
/// spoilt.
void reduce_up(Context& context, Combiner const& combiner, Trees const& trees, Halves const& halves, std::byte* total);
/// Sends each root's half of `buffer` to all ranks.
void send_down(Context& context, Trees const& trees, Halves const& halves, void* buffer, std::size_t grain);

/// What reduce_up(), or send_down(), takes at most.
[[nodiscard]] double double_tree_cost(CostQuestion const& question, int nodes);

}  // namespace weft::p2p
