// reduce by a chain in rank order, in chunks of c bytes: each rank combines what comes from the one before with its own
// and hands it on; the last sends the result to the root. With wide partial results the bits are those over shared
// memory. On the wire, per rank: B. Takes (n − 1)(α + c·(β + γ)) + (B − c)·max(β, γ), and α + c·β where the root is not
// the last.
#include "collectives/p2p/intake.hpp"
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void reduce_chain(Context& context, Call const& call) {
  auto tuned = context.tuning();
  tuned.narrow_partials = false;
  Context inner(context.transport(), tuned);
  Combiner const combiner(inner, call);
  auto const root = static_cast<int>(call.contract.root);
  auto const rank = inner.rank();
  auto const last = inner.size() - 1;
  auto const grain = combiner.grain();
  auto const width = combiner.width();
  auto const count = call.bytes() / grain;
  Chunks const chunks(count, width, inner.tuning());
  auto* const total = inner.workspace(count * width);
  auto* const result =
      rank == root ? static_cast<std::byte*>(call.recv) : inner.workspace(rank == last ? count * grain : 0);
  std::vector<Request> requests;
  // In place, the result must not arrive before this rank's contribution was taken.
  combiner.load(total, call.send, count);
  Intake before(inner, rank > 0 ? rank - 1 : -1, chunks, width);
  for (std::size_t k = 0; k < chunks.size() && rank == root && root != last; ++k) {
    requests.push_back(inner.start_recv(last, at(result, chunks[k].first * grain), chunks[k].count * grain));
  }
  for (std::size_t k = 0; k < chunks.size(); ++k) {
    auto const [first, length] = chunks[k];
    auto* const own = at(total, first * width);
    if (rank > 0) combiner.combine(own, before.next(), own, length);
    if (rank < last) {
      requests.push_back(inner.start_send(rank + 1, own, length * width));
      continue;
    }
    combiner.finish(at(result, first * grain), own, length);
    if (root != last) requests.push_back(inner.start_send(root, at(result, first * grain), length * grain));
  }
  inner.wait(requests);
}

double reduce_chain_cost(CostQuestion const& q) {
  auto const chunk = std::fmin(q.chunk_bytes, q.bytes);
  return (q.n() - 1) * (q.message(chunk) + q.combining(chunk)) +
         (q.bytes - chunk) * std::fmax(q.beta_s_per_byte, q.gamma_s_per_byte) + q.message(chunk);
}

}  // namespace weft::p2p
