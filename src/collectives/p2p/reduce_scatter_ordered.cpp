// reduce_scatter in rank order: every rank gets all contributions to its part, b bytes, chunk by chunk, and combines
// them as kernels::reduce does: the same bits as over shared memory. On the wire, per rank: (n − 1)·b. Takes α + (n −
// 1)·b·max(β, γ) and the lesser of β and γ for one chunk (premul_sum: ⌈log2 n⌉ short messages more).
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void reduce_scatter_ordered(Context& context, Call const& call) {
  reduce_in_rank_order(context, call, shares_of(call, call.send_parts, context.size()), call.recv);
}

double reduce_scatter_ordered_cost(CostQuestion const& q) {
  return reducing_in_rank_order_cost(q, q.bytes);
}

}  // namespace weft::p2p
