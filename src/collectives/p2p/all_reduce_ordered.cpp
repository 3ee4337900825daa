// all_reduce in rank order: every rank gets all contributions to its B/n at once, combines them as kernels::reduce
// does, and hands the result around a ring. The same bits as over shared memory, whatever ranks lie where. On the wire,
// per rank: 2(n − 1)/n·B. Takes n·α + 2(n − 1)/n·B·β + (n − 1)/n·B·γ (premul_sum: ⌈log2 n⌉ short messages more).
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void all_reduce_ordered(Context& context, Call const& call) {
  auto const shares = shares_of(call, context.size());
  auto const mine = shares[static_cast<std::size_t>(context.rank())];
  reduce_in_rank_order(context, call, shares, at(call.recv, mine.offset));
  share_by_ring(context, call.recv, shares);
}

double all_reduce_ordered_cost(CostQuestion const& q) {
  auto const piece = q.bytes / q.n();
  return q.message((q.n() - 1) * piece) + q.combining((q.n() - 1) * piece) + (q.n() - 1) * q.message(piece);
}

}  // namespace weft::p2p
