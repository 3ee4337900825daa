// all_reduce in rank order by one exchange: every rank sends all others its whole buffer, chunk by chunk, and combines
// all contributions to everything as kernels::reduce does. The bits are those over shared memory. On the wire, per
// rank: (n − 1)·B: for two ranks as much as with any other algorithm, in one step. Takes α + (n − 1)·B·max(β, γ) and
// the lesser of β and γ for one chunk (premul_sum: ⌈log2 n⌉ short messages more).
#include "collectives/p2p/rank_order.hpp"
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void all_reduce_exchange(Context& context, Call const& call) {
  reduce_in_rank_order(context, call, Shares(context.ranks(), {0, call.bytes()}), call.recv);
}

double all_reduce_exchange_cost(CostQuestion const& q) {
  return reducing_in_rank_order_cost(q, q.bytes);
}

}  // namespace weft::p2p
