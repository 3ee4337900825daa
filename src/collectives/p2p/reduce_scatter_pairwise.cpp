// reduce_scatter by exchanging pairwise: in step s every rank sends to the rank s further on its part, b bytes, and
// combines what comes from the rank s before. On the wire, per rank: (n − 1)·b. Takes (n − 1)(α + b·(β + γ)), each
// contribution over one link only.
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void reduce_scatter_pairwise(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  auto const width = combiner.width();
  auto const parts = shares_of(call, call.send_parts, context.size());
  auto const mine = parts[static_cast<std::size_t>(context.rank())];
  auto const count = mine.length / combiner.grain();
  auto* const total = context.workspace(count * width);
  auto* const theirs = context.workspace(count * width);
  auto* const scratch = context.workspace(longest_of(parts) / combiner.grain() * width);
  combiner.load(total, at(call.send, mine.offset), count);
  for (int distance = 1; distance < context.size(); ++distance) {
    auto const to = context.around(distance);
    auto const& part = parts[static_cast<std::size_t>(to)];
    context.sendrecv(to, combiner.loaded(at(call.send, part.offset), scratch, part.length / combiner.grain()),
                     part.length / combiner.grain() * width, context.around(-distance), theirs, count * width);
    combiner.combine(total, theirs, total, count);
  }
  combiner.finish(call.recv, total, count);
}

double reduce_scatter_pairwise_cost(CostQuestion const& q) {
  return (q.n() - 1) * (q.message(q.bytes) + q.combining(q.bytes));
}

}  // namespace weft::p2p
