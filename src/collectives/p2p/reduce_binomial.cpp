// reduce by a binomial tree: in step i ranks at a distance of 2^i combine what they have. Operators that do not commute
// go to rank 0, which sends the result to the root.
// On the wire, per rank: at most B; the root gets ⌈log2 n⌉·B. Takes ⌈log2 n⌉(α + B·(β + γ)) for powers of two, no more
// for others (and α + B·β where the result is sent on).
#include "collectives/p2p/binomial.hpp"
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void reduce_binomial(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  auto const root = static_cast<int>(call.contract.root);
  auto const top = combiner.is_ordered() ? 0 : root;
  Binomial const tree(context, top);
  auto const count = call.bytes() / combiner.grain();
  auto const bytes = count * combiner.width();
  auto* const total = context.workspace(bytes);
  auto* const theirs = context.workspace(bytes);
  combiner.load(total, call.send, count);
  for (int distance = 1; distance < tree.reach() && tree.has_child(distance); distance *= 2) {
    context.recv(tree.child(distance), theirs, bytes);
    combiner.combine(total, total, theirs, count);
  }
  if (!tree.is_root()) context.send(tree.parent(), total, bytes);
  if (context.rank() == top && top == root) return combiner.finish(call.recv, total, count);
  if (context.rank() == top) {
    auto* const result = context.workspace(call.bytes());
    combiner.finish(result, total, count);
    context.send(root, result, call.bytes());
  } else if (context.rank() == root && top != root) {
    context.recv(top, call.recv, call.bytes());
  }
}

double reduce_binomial_cost(CostQuestion const& q) {
  return q.ceil_log() * (q.message(q.bytes) + q.combining(q.bytes));
}

}  // namespace weft::p2p
