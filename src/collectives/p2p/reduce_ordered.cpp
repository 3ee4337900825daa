// reduce in rank order: every rank gets all contributions to its B/n, combines them as kernels::reduce does, and sends
// the result to the root. The bits are those over shared memory. On the wire, per rank: m = (n − 1)/n·B and B/n. Takes
// 2α + m·(β + max(β, γ)) and the lesser of β and γ for one chunk (premul_sum: ⌈log2 n⌉ short messages more).
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
  return reducing_in_rank_order_cost(q, q.bytes / q.n()) + q.message((q.n() - 1) / q.n() * q.bytes);
}

}  // namespace weft::p2p
