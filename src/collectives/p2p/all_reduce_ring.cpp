// all_reduce by a ring: n − 1 steps of reduce_scatter, n − 1 of all_gather, each of a message of B/n to the next rank.
// On the wire, per rank: 2(n − 1)/n·B. Takes 2(n − 1)(α + B/n·β) + (n − 1)/n·B·γ: the fewest bytes, the most steps.
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void all_reduce_ring(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  auto const shares = shares_of(call, context.size());
  auto const mine = shares[static_cast<std::size_t>(context.rank())];
  reduce_by_ring(context, combiner, call.send, shares, at(call.recv, mine.offset));
  share_by_ring(context, call.recv, shares);
}

double all_reduce_ring_cost(CostQuestion const& q) {
  return (q.n() - 1) * (2 * q.message(q.bytes / q.n()) + q.combining(q.bytes / q.n()));
}

}  // namespace weft::p2p
