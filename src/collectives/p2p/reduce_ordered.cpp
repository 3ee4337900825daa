// reduce in rank order: every rank gets all contributions to its B/n at once, combines them as kernels::reduce does,
// and sends the result to the root. The same bits as over shared memory. On the wire, per rank: (n − 1)/n·B and B/n.
// Takes 2α + 2(n − 1)/n·B·β + (n − 1)/n·B·γ (premul_sum: ⌈log2 n⌉ short messages more).
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void reduce_ordered(Context& context, Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto const shares = shares_of(call, context.size());
  auto const mine = shares[static_cast<std::size_t>(context.rank())];
  auto const is_root = context.rank() == root;
  auto* const result = is_root ? at(call.recv, mine.offset) : context.workspace(mine.length);
  reduce_in_rank_order(context, call, shares, result);
  if (!is_root) return context.send(root, result, mine.length);
  std::vector<Request> requests;
  for (int distance = 1; distance < context.size(); ++distance) {
    auto const& share = shares[static_cast<std::size_t>(context.around(distance))];
    requests.push_back(context.start_recv(context.around(distance), at(call.recv, share.offset), share.length));
  }
  context.wait(requests);
}

double reduce_ordered_cost(CostQuestion const& q) {
  auto const moved = (q.n() - 1) / q.n() * q.bytes;
  return 2 * q.message(moved) + q.combining(moved);
}

}  // namespace weft::p2p
