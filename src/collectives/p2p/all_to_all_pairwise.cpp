// all_to_all by exchanging pairwise: in step s every rank sends to the rank s further on its part, and gets its own
// from the rank s before. On the wire, per rank: (n − 1)·b. Takes (n − 1)(α + b·β), each part over one link only.
#include "collectives/p2p/cost.hpp"
#include "collectives/p2p/pieces.hpp"

namespace weft::p2p {

void all_to_all_pairwise(Context& context, Call const& call) {
  auto const* send = static_cast<std::byte const*>(call.send);
  if (call.send == call.recv && !has_unequal_parts(call.contract.operation)) {  // in place
    auto const all = context.ranks() * call.bytes();
    auto* const kept = context.workspace(all);
    context.copy(kept, call.send, all);
    send = kept;
  }
  auto const mine = call.part(call.send_parts, context.rank());
  context.copy(at(call.recv, call.part(call.recv_parts, context.rank()).offset), at(send, mine.offset), mine.length);
  auto& transport = context.transport();  // empty parts are sent as well: the other side may expect something else
  for (int distance = 1; distance < context.size(); ++distance) {
    auto const to = context.around(distance);
    auto const from = context.around(-distance);
    auto const gives = call.part(call.send_parts, to);
    auto const gets = call.part(call.recv_parts, from);
    transport.sendrecv(to, {at(send, gives.offset), gives.length}, from, {at(call.recv, gets.offset), gets.length});
  }
}

double all_to_all_pairwise_cost(CostQuestion const& q) {
  return (q.n() - 1) * q.message(q.bytes);
}

}  // namespace weft::p2p
