// reduce_scatter in rank order: every rank gets all contributions to its part, b bytes, at once and combines them as
// kernels::reduce does: the same bits as over shared memory. On the wire, per rank: (n − 1)·b.
// Takes α + (n − 1)·b·(β + γ), and memory for n·b (premul_sum: ⌈log2 n⌉ short messages more).
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void reduce_scatter_ordered(Context& context, Call const& call) {
  reduce_in_rank_order(context, call, shares_of(call, call.send_parts, context.size()), call.recv);
}

double reduce_scatter_ordered_cost(CostQuestion const& q) {
  return q.message((q.n() - 1) * q.bytes) + q.combining((q.n() - 1) * q.bytes);
}

}  // namespace weft::p2p
