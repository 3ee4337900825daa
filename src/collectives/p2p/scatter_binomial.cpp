// scatter by a binomial tree: in every step each rank that has parts hands on those of one half of its subtree. Equal
// parts only. On the wire: the root sends (n − 1)·b. Takes ⌈log2 n⌉·α + (n − 1)·b·β for powers of two, no more for
// others: good for short parts.
#include "collectives/p2p/binomial.hpp"
#include "collectives/p2p/cost.hpp"

namespace weft::p2p {

void scatter_binomial(Context& context, Call const& call) {
  Binomial const tree(context, static_cast<int>(call.contract.root));
  auto const part = call.bytes();
  auto const bytes_of = [&](int nodes) { return static_cast<std::size_t>(nodes) * part; };
  auto* const parts = context.workspace(bytes_of(tree.subtree()));  // from this node's on
  for (int node = 0; node < context.size() && tree.is_root(); ++node) {
    context.copy(at(parts, bytes_of(node)), at(call.send, bytes_of(tree.rank_of(node))), part);
  }
  if (!tree.is_root()) context.recv(tree.parent(), parts, bytes_of(tree.subtree()));
  std::vector<Request> sends;
  for (int distance = tree.reach() / 2; distance > 0; distance /= 2) {
    if (!tree.has_child(distance)) continue;
    sends.push_back(
        context.start_send(tree.child(distance), at(parts, bytes_of(distance)), bytes_of(tree.subtree(distance))));
  }
  context.copy(call.recv, parts, part);
  context.wait(sends);
}

double scatter_binomial_cost(CostQuestion const& q) {
  return q.ceil_log() * q.alpha_s + (q.n() - 1) * q.bytes * q.beta_s_per_byte;
}

}  // namespace weft::p2p
