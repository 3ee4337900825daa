// all_reduce by a ring in both directions: every piece of B/n comes to its rank from both sides at once, and leaves the
// same way, in ⌊n/2⌋ steps each. On the wire, per rank: 2(n − 1)/n·B. Takes 2(⌊n/2⌋·α + (n − 1)/n·B·β) + (n − 1)/n·B·γ:
// the bytes of a ring, half its steps.
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void all_reduce_bidirectional_ring(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  auto const shares = shares_of(call, context.size());
  auto const mine = shares[static_cast<std::size_t>(context.rank())];
  reduce_by_two_rings(context, combiner, call.send, shares, at(call.recv, mine.offset));
  share_by_two_rings(context, call.recv, shares);
}

double all_reduce_bidirectional_ring_cost(CostQuestion const& q) {
  auto const moved = (q.n() - 1) / q.n() * q.bytes;
  int const steps = q.ranks / 2;
  return 2 * (steps * q.alpha_s + moved * q.beta_s_per_byte) + q.combining(moved);
}

}  // namespace weft::p2p
