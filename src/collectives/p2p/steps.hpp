#pragma once

#include "collectives/p2p/combiner.hpp"
#include "collectives/p2p/context.hpp"
#include "collectives/p2p/cost.hpp"
#include "collectives/p2p/pieces.hpp"

// What several algorithms are made of. `shares` has one of a buffer for every rank.
namespace weft::p2p {

/// result = op over r of share `rank` of rank r's `send`, where it may lie, at that share.
void reduce_by_ring(Context& context, Combiner const& combiner, void const* send, Shares const& shares, void* result);
void reduce_by_two_rings(Context& context, Combiner const& combiner, void const* send, Shares const& shares,
                         void* result);
/// The same in rank order, with the bits of kernels::reduce (rank_order.hpp).
void reduce_in_rank_order(Context& context, Call const& call, Shares const& shares, void* result);
/// What that takes with `part` bytes a share: α + (n − 1)·part·max(β, γ), and the lesser of β and γ for one chunk.
[[nodiscard]] double reducing_in_rank_order_cost(CostQuestion const& question, double part);

/// Brings every rank's share of `buffer`, which is in place there, to all.
void share_by_ring(Context& context, void* buffer, Shares const& shares);
void share_by_two_rings(Context& context, void* buffer, Shares const& shares);

}  // namespace weft::p2p
