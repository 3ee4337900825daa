// scan and exscan by a chain, in chunks of c bytes: every rank adds its contribution to what comes from the one before
// and hands it on. It combines like kernels::reduce, so the bits are those over shared memory.
// On the wire, per rank: B. Takes (n − 1)(α + c·(β + γ)) + (B − c)·max(β, γ).
#include "collectives/p2p/intake.hpp"
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void scan_chain(Context& context, Call const& call) {
  auto tuned = context.tuning();
  tuned.narrow_partials = false;
  Context inner(context.transport(), tuned);
  Combiner const combiner(inner, call);
  auto const rank = inner.rank();
  auto const width = combiner.width();
  auto const grain = combiner.grain();
  auto const count = call.bytes() / grain;
  auto const exclusive = call.contract.operation == Operation::exscan;
  Chunks const chunks(count, width, inner.tuning());
  auto* const total = inner.workspace(count * width);
  Intake before(inner, rank > 0 ? rank - 1 : -1, chunks, width);
  std::vector<Request> sends;
  for (std::size_t k = 0; k < chunks.size(); ++k) {
    auto const [first, length] = chunks[k];
    auto* const own = at(total, first * width);
    auto* const result = at(call.recv, first * grain);
    combiner.load(own, at(call.send, first * grain), length);
    if (rank > 0) {
      auto const* const prefix = before.next();
      if (exclusive) combiner.finish(result, prefix, length);
      if (!exclusive || rank + 1 < inner.size()) combiner.combine(own, prefix, own, length);
    }
    if (!exclusive) combiner.finish(result, own, length);
    if (rank + 1 < inner.size()) sends.push_back(inner.start_send(rank + 1, own, length * width));
  }
  inner.wait(sends);
}

double scan_chain_cost(CostQuestion const& q) {
  auto const chunk = std::fmin(q.chunk_bytes, q.bytes);
  return (q.n() - 1) * (q.message(chunk) + q.combining(chunk)) +
         (q.bytes - chunk) * std::fmax(q.beta_s_per_byte, q.gamma_s_per_byte);
}

}  // namespace weft::p2p
