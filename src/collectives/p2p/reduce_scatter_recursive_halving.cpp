// reduce_scatter by recursive halving: ranks at a distance of p/2, p/4, … exchange halves of what they have: each sends
// the half that holds the other's parts. Of n = p + r ranks, p a power of two, r ranks first hand everything to a
// neighbour, and get their part last. On the wire, per rank: (n − 1)·b. Takes log2 n·α + (n − 1)·b·(β + γ) for powers
// of two; otherwise no more than log2 p·α + 2(p − 1)·b·(β + γ) + 2α + (n + 1)·b·β + n·b·γ.
#include "collectives/p2p/power_of_two.hpp"
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void reduce_scatter_recursive_halving(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  PowerOfTwo const team(context);
  auto const width = combiner.width();
  auto const parts = shares_of(call, call.send_parts, context.size());
  auto const mine = parts[static_cast<std::size_t>(context.rank())];
  // `total` holds the parts one after the other in rank order, wherever the caller has them.
  std::vector<std::size_t> starts{0};
  for (auto const& part : parts) starts.push_back(starts.back() + part.length / combiner.grain());
  auto* const total = context.workspace(starts.back() * width);
  for (std::size_t r = 0; r < parts.size(); ++r) {
    combiner.load(at(total, starts[r] * width), at(call.send, parts[r].offset), parts[r].length / combiner.grain());
  }
  if (team.sits_out()) {
    context.send(team.partner(), total, starts.back() * width);
    return context.recv(team.partner(), call.recv, mine.length);
  }
  auto* const theirs = context.workspace(starts.back() * width);
  if (team.is_paired()) {
    context.recv(team.partner(), theirs, starts.back() * width);
    combiner.combine(total, total, theirs, starts.back());
  }
  // The parts of actors [first, last), as grains of `total`.
  auto const range = [&](int first, int last) {
    auto const begin = starts[static_cast<std::size_t>(team.rank_of(first))];
    return Piece{begin, starts[static_cast<std::size_t>(team.rank_of(last))] - begin};
  };
  int first = 0;
  for (int distance = team.actors() / 2; distance > 0; distance /= 2) {
    auto const upper = (team.actor() & distance) != 0;
    auto const keep = range(upper ? first + distance : first, upper ? first + 2 * distance : first + distance);
    auto const give = range(upper ? first : first + distance, upper ? first + distance : first + 2 * distance);
    auto const peer = team.rank_of(team.actor() ^ distance);
    context.sendrecv(peer, at(total, give.first * width), give.count * width, peer, theirs, keep.count * width);
    auto* const kept = at(total, keep.first * width);
    combiner.combine(kept, kept, theirs, keep.count);
    if (upper) first += distance;
  }
  auto const rank = static_cast<std::size_t>(context.rank());
  combiner.finish(call.recv, at(total, starts[rank] * width), mine.length / combiner.grain());
  if (!team.is_paired()) return;
  auto const& others = parts[rank + 1];
  auto* const result = context.workspace(others.length);
  combiner.finish(result, at(total, starts[rank + 1] * width), others.length / combiner.grain());
  context.send(team.partner(), result, others.length);
}

double reduce_scatter_recursive_halving_cost(CostQuestion const& q) {
  auto const steps = [&](double parts) {
    return q.floor_log() * q.alpha_s + parts * q.bytes * (q.beta_s_per_byte + q.gamma_s_per_byte);
  };
  if (q.is_power_of_two()) return steps(q.n() - 1);
  auto const actors = static_cast<double>(1U << static_cast<unsigned>(q.floor_log()));
  return steps(2 * (actors - 1)) + q.message(q.n() * q.bytes) + q.combining(q.n() * q.bytes) + q.message(q.bytes);
}

}  // namespace weft::p2p
