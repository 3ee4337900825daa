#pragma once

#include "collectives/p2p/combiner.hpp"
#include "collectives/p2p/context.hpp"
#include "collectives/p2p/cost.hpp"
#include "collectives/p2p/pieces.hpp"

// Steps that several algorithms are made of. `shares` has every rank's share of a buffer.
namespace weft::p2p {

/// Combines what every rank has in its `send` at this rank's share into `result`, which may lie there too.
void reduce_by_ring(Context& context, Combiner const& combiner, void const* send, Shares const& shares, void* result);
void reduce_by_two_rings(Context& context, Combiner const& combiner, void const* send, Shares const& shares,
                         void* result);
/// The same in rank order, with the bits of kernels::reduce (see rank_order.hpp).
void reduce_in_rank_order(Context& context, Call const& call, Shares const& shares, void* result);
/// What reduce_in_rank_order() takes with shares of `part` bytes: α + (n − 1)·part·max(β, γ), and the lesser of β and γ
/// for one chunk.
[[nodiscard]] double reducing_in_rank_order_cost(CostQuestion const& question, double part);

/// Brings every rank's share of `buffer`, which lies at its place there, to all ranks.
void share_by_ring(Context& context, void* buffer, Shares const& shares);
void share_by_two_rings(Context& context, void* buffer, Shares const& shares);

}  // namespace weft::p2p
