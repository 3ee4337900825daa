// all_gather by recursive doubling: in step i ranks at a distance of 2^i exchange all they have. Of n = p + r ranks, p
// a power of two, r ranks first hand their part to a neighbour, and get everything last. Equal parts only. On the wire,
// per rank: (n − 1)·b. Takes log2 n·α + (n − 1)·b·β for powers of two; otherwise no more than
// log2 p·α + 2(p − 1)·b·β + 2α + (n + 1)·b·β.
#include "collectives/p2p/power_of_two.hpp"
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {

void all_gather_recursive_doubling(Context& context, Call const& call) {
  PowerOfTwo const team(context);
  auto const part = call.bytes();
  auto const part_at = [&](int rank) { return at(call.recv, static_cast<std::size_t>(rank) * part); };
  auto const all = context.ranks() * part;
  if (team.sits_out()) {
    context.send(team.partner(), call.send, part);
    return context.recv(team.partner(), call.recv, all);
  }
  context.copy(part_at(context.rank()), call.send, part);
  if (team.is_paired()) context.recv(team.partner(), part_at(team.partner()), part);
  for (int distance = 1; distance < team.actors(); distance *= 2) {
    auto const first = team.actor() / distance * distance;
    auto const their_first = first ^ distance;
    auto const bytes_of = [&](int actor) {
      return static_cast<std::size_t>(team.rank_of(actor + distance) - team.rank_of(actor)) * part;
    };
    auto const peer = team.rank_of(team.actor() ^ distance);
    context.sendrecv(peer, part_at(team.rank_of(first)), bytes_of(first), peer, part_at(team.rank_of(their_first)),
                     bytes_of(their_first));
  }
  if (team.is_paired()) context.send(team.partner(), call.recv, all);
}

double all_gather_recursive_doubling_cost(CostQuestion const& q) {
  auto const steps = [&](double parts) { return q.floor_log() * q.alpha_s + parts * q.bytes * q.beta_s_per_byte; };
  if (q.is_power_of_two()) return steps(q.n() - 1);
  auto const actors = static_cast<double>(1U << static_cast<unsigned>(q.floor_log()));
  return steps(2 * (actors - 1)) + q.message(q.bytes) + q.message(q.n() * q.bytes);
}

}  // namespace weft::p2p
