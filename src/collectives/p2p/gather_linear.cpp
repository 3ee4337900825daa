// gather straight to the root, of equal or unequal parts. On the wire: the root gets (n − 1)·b in n − 1 messages. Takes
// α + (n − 1)·b·β where messages cost their receiver no more than their bytes: good for long parts.
#include "collectives/p2p/cost.hpp"
#include "collectives/p2p/pieces.hpp"

namespace weft::p2p {

void gather_linear(Context& context, Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto& transport = context.transport();  // empty parts are sent as well: only the root knows all lengths
  auto const unequal = call.contract.operation == Operation::gather_v;
  auto const own = unequal ? call.own_bytes : call.bytes();
  if (context.rank() != root) return transport.send(root, {static_cast<std::byte const*>(call.send), own});
  std::vector<Request> requests;
  for (int r = 0; r < context.size(); ++r) {
    auto const part = call.part(call.recv_parts, r);
    if (r == root) context.copy(at(call.recv, part.offset), call.send, part.length);
    if (r != root) requests.push_back(transport.start_recv(r, {at(call.recv, part.offset), part.length}));
  }
  context.wait(requests);
}

double gather_linear_cost(CostQuestion const& q) {
  return q.message((q.n() - 1) * q.bytes);
}

}  // namespace weft::p2p
