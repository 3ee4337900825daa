// scatter straight from the root, of equal or unequal parts. On the wire: the root sends (n − 1)·b in n − 1 messages.
// Takes α + (n − 1)·b·β where messages cost their sender no more than their bytes: good for long parts.
#include "collectives/p2p/cost.hpp"
#include "collectives/p2p/pieces.hpp"

namespace weft::p2p {

void scatter_linear(Context& context, Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto& transport = context.transport();  // empty parts are sent as well: only the root knows all lengths
  auto const unequal = call.contract.operation == Operation::scatter_v;
  auto const own = unequal ? call.own_bytes : call.bytes();
  if (context.rank() != root) return transport.recv(root, {static_cast<std::byte*>(call.recv), own});
  std::vector<Request> requests;
  for (int r = 0; r < context.size(); ++r) {
    auto const part = call.part(call.send_parts, r);
    if (r == root) context.copy(call.recv, at(call.send, part.offset), part.length);
    if (r != root) requests.push_back(transport.start_send(r, {at(call.send, part.offset), part.length}));
  }
  context.wait(requests);
}

double scatter_linear_cost(CostQuestion const& q) {
  return q.message((q.n() - 1) * q.bytes);
}

}  // namespace weft::p2p
