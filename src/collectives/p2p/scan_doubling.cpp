// scan and exscan by doubling: in step i every rank sends what it has combined, the 2^i contributions up to its own, to
// the rank 2^i further on. On the wire, per rank: at most ⌈log2 n⌉·B. Takes ⌈log2 n⌉(α + B·(β + γ)); exscan combines
// twice.
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void scan_doubling(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  auto const rank = context.rank();
  auto const count = call.bytes() / combiner.grain();
  auto const bytes = count * combiner.width();
  auto const exclusive = call.contract.operation == Operation::exscan;
  auto* const total = context.workspace(bytes);  // up to this rank's own
  auto* const before = context.workspace(exclusive ? bytes : 0);
  auto* const theirs = context.workspace(bytes);
  combiner.load(total, call.send, count);
  for (int distance = 1; distance < context.size(); distance *= 2) {
    auto incoming = rank >= distance ? context.start_recv(rank - distance, theirs, bytes) : Request::none;
    auto outgoing =
        rank + distance < context.size() ? context.start_send(rank + distance, total, bytes) : Request::none;
    context.wait(incoming);
    context.wait(outgoing);
    if (rank < distance) continue;
    if (exclusive && distance == 1) context.copy(before, theirs, bytes);
    if (exclusive && distance > 1) combiner.combine(before, theirs, before, count);
    combiner.combine(total, theirs, total, count);
  }
  if (!exclusive) combiner.finish(call.recv, total, count);
  if (exclusive && rank > 0) combiner.finish(call.recv, before, count);
}

double scan_doubling_cost(CostQuestion const& q) {
  return q.ceil_log() * (q.message(q.bytes) + q.combining(q.bytes));
}

}  // namespace weft::p2p
