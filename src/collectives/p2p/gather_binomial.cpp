// gather by a binomial tree: in step i ranks at a distance of 2^i hand on the parts of their subtree. Equal parts only.
// On the wire: the root gets (n − 1)·b. Takes ⌈log2 n⌉·α + (n − 1)·b·β for powers of two, no more for others: good for
// short parts.
#include "collectives/p2p/binomial.hpp"
#include "collectives/p2p/cost.hpp"

namespace weft::p2p {

void gather_binomial(Context& context, Call const& call) {
  Binomial const tree(context, static_cast<int>(call.contract.root));
  auto const part = call.bytes();
  auto const bytes_of = [&](int nodes) { return static_cast<std::size_t>(nodes) * part; };
  auto* const gathered = context.workspace(bytes_of(tree.subtree()));  // from this node's part on
  context.copy(gathered, call.send, part);
  for (int distance = 1; distance < tree.reach() && tree.has_child(distance); distance *= 2) {
    context.recv(tree.child(distance), at(gathered, bytes_of(distance)), bytes_of(tree.subtree(distance)));
  }
  if (!tree.is_root()) return context.send(tree.parent(), gathered, bytes_of(tree.subtree()));
  for (int node = 0; node < context.size(); ++node) {
    context.copy(at(call.recv, bytes_of(tree.rank_of(node))), at(gathered, bytes_of(node)), part);
  }
}

double gather_binomial_cost(CostQuestion const& q) {
  return q.ceil_log() * q.alpha_s + (q.n() - 1) * q.bytes * q.beta_s_per_byte;
}

}  // namespace weft::p2p
