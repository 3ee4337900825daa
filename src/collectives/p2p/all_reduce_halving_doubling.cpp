// all_reduce after Rabenseifner: a reduce_scatter that halves what is exchanged while the distance doubles, then an
// all_gather the same way back. Of n = p + r ranks, p a power of two, r ranks first hand their contribution to a
// neighbour, and get the result last. On the wire, per rank: 2(1 − 1/p)·B. Takes 2·log2 p·α + (1 − 1/p)·B·(2β + γ), and
// at most 2(α + B·β) + B·γ + B/2·β where r > 0: the fewest bytes in few steps.
#include "collectives/p2p/power_of_two.hpp"
#include "collectives/p2p/steps.hpp"

namespace weft::p2p {
namespace {

/// Joins neighbouring pieces into one.
Piece joined(std::vector<Piece> const& pieces, std::size_t first, std::size_t count) noexcept {
  auto const& last = pieces[first + count - 1];
  return {pieces[first].first, last.first + last.count - pieces[first].first};
}

/// What a rank and its peer divide between them in one step.
struct Division {
  int peer = 0;
  Piece mine;
  Piece theirs;
};

/// The steps of a rank, from the nearest peer, with which it divides all, to the farthest.
std::vector<Division> plan(PowerOfTwo const& team, std::vector<Piece> const& pieces) {
  std::vector<Division> steps;
  std::size_t first = 0;
  auto count = pieces.size();
  for (int distance = 1; distance < team.actors(); distance *= 2) {
    count /= 2;
    auto const lower = (team.actor() & distance) == 0;
    auto const mine = lower ? first : first + count;
    auto const theirs = lower ? first + count : first;
    steps.push_back(
        {team.rank_of(team.actor() ^ distance), joined(pieces, mine, count), joined(pieces, theirs, count)});
    first = mine;
  }
  return steps;
}

}  // namespace

void all_reduce_halving_doubling(Context& context, Call const& call) {
  Combiner const combiner(context, call);
  PowerOfTwo const team(context);
  auto const width = combiner.width();
  auto const grain = combiner.grain();
  auto const count = call.bytes() / grain;
  if (team.sits_out()) {
    auto* const scratch = context.workspace(count * width);
    context.send(team.partner(), combiner.loaded(call.send, scratch, count), count * width);
    return context.recv(team.partner(), call.recv, call.bytes());
  }
  auto* const total = width == grain ? static_cast<std::byte*>(call.recv) : context.workspace(count * width);
  auto* const theirs = context.workspace(count * width);
  combiner.load(total, call.send, count);
  if (team.is_paired()) {
    context.recv(team.partner(), theirs, count * width);
    combiner.combine(total, total, theirs, count);
  }
  auto const pieces = split(count, static_cast<std::size_t>(team.actors()), grain);
  auto const steps = plan(team, pieces);
  for (auto const& step : steps) {
    context.sendrecv(step.peer, at(total, step.theirs.first * width), step.theirs.count * width, step.peer, theirs,
                     step.mine.count * width);
    auto* const mine = at(total, step.mine.first * width);
    auto const first = step.peer > context.rank();
    combiner.combine(mine, first ? mine : theirs, first ? theirs : mine, step.mine.count);
  }
  auto const own = steps.empty() ? Piece{0, count} : steps.back().mine;
  combiner.finish(at(call.recv, own.first * grain), at(total, own.first * width), own.count);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    context.sendrecv(step->peer, at(call.recv, step->mine.first * grain), step->mine.count * grain, step->peer,
                     at(call.recv, step->theirs.first * grain), step->theirs.count * grain);
  }
  if (team.is_paired()) context.send(team.partner(), call.recv, call.bytes());
}

double all_reduce_halving_doubling_cost(CostQuestion const& q) {
  auto const moved = q.bytes - q.bytes / static_cast<double>(1U << static_cast<unsigned>(q.floor_log()));
  auto const outside =
      q.is_power_of_two() ? 0 : 2 * q.message(q.bytes) + q.combining(q.bytes) + q.bytes / 2 * q.beta_s_per_byte;
  return 2 * (q.floor_log() * q.alpha_s + moved * q.beta_s_per_byte) + q.combining(moved) + outside;
}

}  // namespace weft::p2p
