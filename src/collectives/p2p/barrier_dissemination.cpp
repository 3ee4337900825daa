// barrier by dissemination: in step i every rank tells the rank 2^i further on that it has come, and so have all that
// it has heard of. On the wire, per rank: ⌈log2 n⌉ messages of one byte. Takes ⌈log2 n⌉·α.
#include "collectives/p2p/context.hpp"
#include "collectives/p2p/cost.hpp"

namespace weft::p2p {

void barrier_dissemination(Context& context, Call const& /*call*/) {
  auto* const sign = context.workspace(2);
  context.copy(sign, "", 1);
  for (int distance = 1; distance < context.size(); distance *= 2) {
    context.sendrecv(context.around(distance), sign, 1, context.around(-distance), sign + 1, 1);
  }
}

double barrier_dissemination_cost(CostQuestion const& q) {
  return q.ceil_log() * q.message(1);
}

}  // namespace weft::p2p
