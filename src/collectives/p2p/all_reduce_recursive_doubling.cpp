// all_reduce by recursive doubling: in step i ranks at a distance of 2^i exchange all they have combined. Of n = p + r
// ranks, p a power of two, r ranks first hand their contribution to a neighbour, and get the result last.
// On the wire, per rank: log2 p·B. Takes log2 p·(α + B·(β + γ)), and at most 2(α + B·β) + B·γ where r > 0: the fewest
// steps.
#include "collectives/p2p/power_of_two.hpp"
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void all_reduce_recursive_doubling(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  PowerOfTwo const team(context);
  auto const count = call.bytes() / combiner.grain();
  auto const bytes = count * combiner.width();
  if (team.sits_out()) {
    auto* const scratch = context.workspace(bytes);
    context.send(team.partner(), combiner.loaded(call.send, scratch, count), bytes);
    return context.recv(team.partner(), call.recv, call.bytes());
  }
  auto* const total =
      combiner.width() == combiner.grain() ? static_cast<std::byte*>(call.recv) : context.workspace(bytes);
  auto* const theirs = context.workspace(bytes);
  combiner.load(total, call.send, count);
  if (team.is_paired()) {
    context.recv(team.partner(), theirs, bytes);
    combiner.combine(total, total, theirs, count);
  }
  for (int distance = 1; distance < team.actors(); distance *= 2) {
    auto const peer = team.rank_of(team.actor() ^ distance);
    context.sendrecv(peer, total, bytes, peer, theirs, bytes);
    auto const first = peer > context.rank();
    combiner.combine(total, first ? total : theirs, first ? theirs : total, count);
  }
  combiner.finish(call.recv, total, count);
  if (team.is_paired()) context.send(team.partner(), call.recv, call.bytes());
}

double all_reduce_recursive_doubling_cost(CostQuestion const& q) {
  auto const step = q.message(q.bytes) + q.combining(q.bytes);
  return q.floor_log() * step + (q.is_power_of_two() ? 0 : step + q.message(q.bytes));
}

}  // namespace weft::p2p
