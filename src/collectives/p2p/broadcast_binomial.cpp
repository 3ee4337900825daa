// broadcast by a binomial tree: in every step each rank that has the data sends it to a rank that has not.
// On the wire: the root sends at most ⌈log2 n⌉·B. Takes ⌈log2 n⌉(α + B·β) for powers of two, no more for others.
#include "collectives/p2p/binomial.hpp"
#include "collectives/p2p/cost.hpp"

namespace weft::p2p {

void broadcast_binomial(Context& context, Call const& call) {
  Binomial const tree(context, static_cast<int>(call.contract.root));
  auto* const data = call.recv;
  context.copy(data, call.send, tree.is_root() ? call.bytes() : 0);
  if (!tree.is_root()) context.recv(tree.parent(), data, call.bytes());
  std::vector<Request> sends;
  for (int distance = tree.reach() / 2; distance > 0; distance /= 2) {
    if (tree.has_child(distance)) sends.push_back(context.start_send(tree.child(distance), data, call.bytes()));
  }
  context.wait(sends);
}

double broadcast_binomial_cost(CostQuestion const& q) {
  return q.ceil_log() * q.message(q.bytes);
}

}  // namespace weft::p2p
