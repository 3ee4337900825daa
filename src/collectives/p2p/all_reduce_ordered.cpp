// all_reduce in rank order: every rank gets all contributions to its B/n, combines them as kernels::reduce does, and
// sends every other rank the result. All of this goes chunk by chunk, so that both halves and the combining go on at
// once. The bits are those over shared memory, whichever ranks lie where. On the wire, per rank: 2(n − 1)/n·B. With
// m = (n − 1)/n·B takes no more than 2α + max(2m·β + γ, m·γ + 2β), where single γ and β are of one chunk (premul_sum:
// ⌈log2 n⌉ short messages more).
#include "collectives/p2p/rank_order.hpp"
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void all_reduce_ordered(Context& context, Call const& call) {
  RankOrder order(context, call, shares_of(call, context.size()));
  std::vector<Request> results;
  for (std::size_t k = 0; k < order.chunks(); ++k) {
    auto const mine = order.chunk(context.rank(), k);
    order.combine(k, at(call.recv, mine.offset));
    for (int distance = 1; distance < context.size(); ++distance) {
      results.push_back(context.start_send(context.around(distance), at(call.recv, mine.offset), mine.length));
    }
    for (int distance = 1; distance < context.size(); ++distance) {
      auto const theirs = order.chunk(context.around(-distance), k);
      results.push_back(context.start_recv(context.around(-distance), at(call.recv, theirs.offset), theirs.length));
    }
    order.go_on(k);
  }
  context.wait(results);
}

double all_reduce_ordered_cost(CostQuestion const& q) {
  auto const part = q.bytes / q.n();
  auto const moved = (q.n() - 1) * part;
  auto const chunk = moved / q.chunks(part);
  auto const messages = 2 * (q.n() - 1) * q.chunks(part);
  return 2 * q.alpha_s + messages * q.message_s +
         std::fmax(2 * moved * q.beta_s_per_byte + q.combining(chunk),
                   q.combining(moved) + 2 * chunk * q.beta_s_per_byte);
}

}  // namespace weft::p2p
