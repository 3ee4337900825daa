// reduce_scatter by a ring: n − 1 steps, each of a message of one part, b bytes, to the next rank.
// On the wire, per rank: (n − 1)·b. Takes (n − 1)(α + b·(β + γ)); the longest part counts where they differ.
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void reduce_scatter_ring(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  reduce_by_ring(context, combiner, call.send, shares_of(call, call.send_parts, context.size()), call.recv);
}

double reduce_scatter_ring_cost(CostQuestion const& q) {
  return (q.n() - 1) * (q.message(q.bytes) + q.combining(q.bytes));
}

}  // namespace weft::p2p
