// all_gather by a ring: n − 1 steps, each of a message of one part, b bytes, to the next rank.
// On the wire, per rank: (n − 1)·b. Takes (n − 1)(α + b·β); the longest part counts where they differ.
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void all_gather_ring(Context& context, Call const& call) {
  auto const parts = shares_of(call, call.recv_parts, context.size());
  auto const mine = parts[static_cast<std::size_t>(context.rank())];
  context.copy(at(call.recv, mine.offset), call.send, mine.length);
  share_by_ring(context, call.recv, parts);
}

double all_gather_ring_cost(CostQuestion const& q) {
  return (q.n() - 1) * q.message(q.bytes);
}

}  // namespace weft::p2p
