// all_gather after Bruck: in step i every rank sends all it has, up to 2^i parts, to the rank 2^i before.
// On the wire, per rank: (n − 1)·b, and what a rank gets is copied once. Takes ⌈log2 n⌉·α + (n − 1)·b·β, for any n.
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void all_gather_bruck(Context& context, Call const& call) {
  auto const parts = shares_of(call, call.recv_parts, context.size());
  auto const part_at = [&](std::size_t i) {
    return parts[static_cast<std::size_t>(context.around(static_cast<int>(i)))];
  };
  auto const n = context.ranks();
  // Parts in order from this rank's on: what a rank has is always the first of them.
  std::vector<std::size_t> starts{0};
  for (std::size_t i = 0; i < n; ++i) starts.push_back(starts.back() + part_at(i).length);
  auto* const gathered = context.workspace(starts.back());
  context.copy(gathered, call.send, starts[1]);
  // What the rank `have` before has room for are parts from this rank's on, too: its own lengths say where they end.
  for (std::size_t have = 1; have < n; have *= 2) {
    auto const count = std::min(have, n - have);
    auto const distance = static_cast<int>(have);
    context.sendrecv(context.around(-distance), gathered, starts[count], context.around(distance),
                     at(gathered, starts[have]), starts[have + count] - starts[have]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    context.copy(at(call.recv, part_at(i).offset), at(gathered, starts[i]), part_at(i).length);
  }
}

double all_gather_bruck_cost(CostQuestion const& q) {
  return q.ceil_log() * q.alpha_s + (q.n() - 1) * q.bytes * q.beta_s_per_byte;
}

}  // namespace weft::p2p
