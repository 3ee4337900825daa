// broadcast by a chain, in chunks of c bytes: every rank hands on what it gets while the next chunk comes.
// On the wire, per rank: B. Takes (n − 1)(α + c·β) + (B − c)·β: good for long messages and few ranks.
#include "collectives/p2p/cost.hpp"
#include "collectives/p2p/pieces.hpp"

namespace weft::p2p {

void broadcast_chain(Context& context, Call const& call) {
  auto const root = static_cast<int>(call.contract.root);
  auto* const data = call.recv;
  auto const first = context.rank() == root;
  auto const last = context.around(1) == root;
  context.copy(data, call.send, first ? call.bytes() : 0);
  Chunks const chunks(call.bytes(), 1, context.tuning());
  std::vector<Request> receives;
  std::vector<Request> sends;
  for (std::size_t k = 0; k < chunks.size() && !first; ++k) {
    receives.push_back(context.start_recv(context.around(-1), at(data, chunks[k].first), chunks[k].count));
  }
  for (std::size_t k = 0; k < chunks.size(); ++k) {
    if (!first) context.wait(receives[k]);
    if (!last) sends.push_back(context.start_send(context.around(1), at(data, chunks[k].first), chunks[k].count));
  }
  context.wait(sends);
}

double broadcast_chain_cost(CostQuestion const& q) {
  auto const chunk = std::fmin(q.chunk_bytes, q.bytes);
  return (q.n() - 1) * q.message(chunk) + (q.bytes - chunk) * q.beta_s_per_byte;
}

}  // namespace weft::p2p
