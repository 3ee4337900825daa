#include "collectives/shm/selector.hpp"

#include <algorithm>

#include "collectives/shm/feeds.hpp"

namespace weft::shm {
namespace {

constexpr auto kAll = Choice::kUnlimited;
/// The most ranks that share cores for which one alone can take what the others give as fast as they give it.
constexpr int kFewGivers = 8;

Choices always(Algorithm algorithm, std::size_t chunk_bytes) {
  return {Choice{kAll, chunk_bytes, algorithm}};
}

/// The choice that moves data which is not reached directly.
Choice staging(Tuning const& tuning, int ranks, std::size_t up_to, std::size_t chunk_bytes) {
  if (ranks == 2 && tuning.swap_bytes > 0) return {up_to, tuning.swap_bytes, Algorithm::swapped};
  return {up_to, chunk_bytes, Algorithm::staged};
}

Rules derive_all_reduce(Tuning const& tuning, int ranks) {
  Rules rules;
  rules.symmetric =
      tuning.share_work ? always(Algorithm::direct_claimed, tuning.claim_bytes) : always(Algorithm::direct, 0);
  if (ranks == 2 && tuning.swap_bytes > 0) {
    rules.small = {staging(tuning, ranks, tuning.staged_bytes, 0)};
    rules.other = {staging(tuning, ranks, kAll, 0)};
    return rules;
  }
  auto const several = tuning.share_work ? Algorithm::claimed : Algorithm::two_phase;
  rules.small = {Choice{tuning.one_phase_bytes, tuning.one_phase_bytes, Algorithm::one_phase},
                 Choice{tuning.staged_bytes, tuning.staged_bytes, several}};
  rules.other = always(several, tuning.chunk_bytes);
  return rules;
}

/// Whether the root alone combines as fast as the few ranks of another core give.
bool root_keeps_up(Tuning const& tuning, int ranks) {
  return tuning.share_work && tuning.cores <= 2 && ranks <= kFewGivers;
}

/// The root alone combines what it is fed. With two ranks that is all there is to do, in small calls it is little, and
/// on two shared cores it is no more than each core does where their ranks stage for one another.
Rules derive_reduce(Tuning const& tuning, int ranks) {
  auto rules = derive_all_reduce(tuning, ranks);
  rules.small.front().algorithm = Algorithm::fed;
  rules.small.front().chunk_bytes = Feeds::block_bytes(rules.small.front().up_to);
  if ((ranks == 2 && tuning.swap_bytes > 0) || root_keeps_up(tuning, ranks))
    rules.other = always(Algorithm::fed, Feeds::block_bytes(kAll));
  return rules;
}

/// A rank that only gives feeds the others, and one that only gets is fed by them: they need not meet, and copy at the
/// same time. Of a call too long for that, each rank moves a share. Limits as measured, docs/decisions/0003.
void derive_rooted(Selector& selector, Tuning const& tuning, int ranks) {
  constexpr std::size_t kMostFed = std::size_t{2} << 20;
  constexpr std::size_t kMostScattered = std::size_t{1} << 20;  // where ranks share cores
  auto const fed = [](std::size_t up_to) { return Choice{up_to, Feeds::block_bytes(up_to), Algorithm::fed}; };
  // The kernel pins pages before it copies, so copying twice through the feeds is faster for one rank. But with more
  // than two ranks all the others fetch at the same time.
  auto const fetches = tuning.reads_peers && ranks > 2;
  auto const other = [&](std::size_t most_fed) {
    return fetches ? Choices{fed(most_fed), Choice{kAll, 0, Algorithm::fetched}} : Choices{fed(kAll)};
  };
  Choice const direct{kAll, 0, Algorithm::direct};
  auto const parts = tuning.staged_bytes * static_cast<std::size_t>(ranks);
  auto const whole = ranks == 2 ? tuning.staged_bytes : tuning.chunk_bytes;
  selector.rules(Collective::broadcast) = {.small = {fed(whole)}, .symmetric = {direct}, .other = other(kMostFed)};
  selector.rules(Collective::gather) = {.small = {fed(parts)}, .symmetric = {direct}, .other = other(kMostFed)};
  selector.rules(Collective::scatter) = {.small = {fed(parts)}, .symmetric = {direct}, .other = other(kMostFed)};
  if (!tuning.share_work) return;
  // What a root gives to all is in the cores' caches when their ranks' turns come, and so is what a few give to it; a
  // scatter's parts are read once.
  selector.rules(Collective::broadcast).other = {fed(kAll)};
  if (ranks <= kFewGivers) selector.rules(Collective::gather).other = {fed(kAll)};
  selector.rules(Collective::scatter).other = other(kMostScattered);
}

/// Where ranks share cores, each meeting takes a turn of every rank, which costs more than copying twice. Ranks meet
/// once to stage, twice to reach one another's buffers, and not at all through feeds. Limits as measured,
/// docs/decisions/0003 and 0007.
void avoid_turns(Selector& selector, Tuning const& tuning, int ranks) {
  constexpr std::size_t kKiB = 1024;
  auto const feed = [&](Collective collective, std::size_t up_to) {
    auto& least = selector.rules(collective).small.front();
    least.up_to = std::max(least.up_to, up_to);
  };
  auto const stage = [&](Collective collective, std::size_t up_to) {
    auto& small = selector.rules(collective).small;
    auto& longest = *std::find_if(small.rbegin(), small.rend(), [](Choice const& each) { return each.up_to > 0; });
    longest.up_to = std::max(longest.up_to, up_to);
    longest.chunk_bytes = std::max(longest.chunk_bytes, tuning.chunk_bytes);
  };
  auto const all = static_cast<std::size_t>(ranks);
  // What others have read in a rank's own memory costs it more to write again: the more ranks have read it, and the
  // further apart the cores lie, the more.
  stage(Collective::all_gather, std::min(2048 * kKiB, 256 * kKiB * all));
  // Calls that go in one block. Of all_reduces only those that take up to 1 MiB of all ranks together, which stays in
  // the caches.
  if (ranks <= kFewTurns) {
    stage(Collective::all_reduce, std::min(tuning.chunk_bytes, 1024 * kKiB / all));
    stage(Collective::reduce_scatter, tuning.chunk_bytes);
  }
  stage(Collective::pull, tuning.chunk_bytes);
  // What lies in the caches of several cores is dear to write again. While the buffers of all ranks lie there, moving
  // data twice is cheaper than that: for four ranks of 8 MiB, or eight of 2, but not for eight of 8.
  auto const cached = 32 * 1024 * kKiB / all;
  feed(Collective::reduce, root_keeps_up(tuning, ranks) ? cached : 128 * kKiB / all);
  feed(Collective::gather, 512 * kKiB);
  // Copying twice what a root gives pays while it stays in L2, and up to longer calls the more ranks take their turns.
  auto const turns = std::max<std::size_t>(all, 4);  // fewer were not measured
  auto const pays = tuning.l2_bytes * turns * turns / 256;
  feed(Collective::scatter, std::min(256 * kKiB, pays));
  feed(Collective::broadcast, ranks <= kFewGivers ? cached : std::min(1024 * kKiB, 4 * pays));
}

}  // namespace

std::string_view to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::swapped: return "swapped";
    case Algorithm::staged: return "staged";
    case Algorithm::one_phase: return "one_phase";
    case Algorithm::two_phase: return "two_phase";
    case Algorithm::claimed: return "claimed";
    case Algorithm::direct: return "direct";
    case Algorithm::direct_claimed: return "direct_claimed";
    case Algorithm::fed: return "fed";
    case Algorithm::fetched: return "fetched";
    case Algorithm::two_level: return "two_level";
  }
  return "unknown algorithm";
}

std::string_view to_string(Collective collective) noexcept {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::broadcast: return "broadcast";
    case Collective::reduce: return "reduce";
    case Collective::gather: return "gather";
    case Collective::scatter: return "scatter";
    case Collective::pull: return "pull";
    case Collective::scan: return "scan";
  }
  return "unknown collective";
}

std::string_view to_string(Memory memory) noexcept {
  switch (memory) {
    case Memory::any: return "any memory";
    case Memory::symmetric: return "symmetric memory";
    case Memory::in_place: return "symmetric memory, in place";
    case Memory::other: return "private memory";
  }
  return "unknown memory";
}

std::size_t Selector::above(Collective collective, Memory memory, Choice const& choice) const noexcept {
  std::size_t most = 0;
  auto const below = [&](Choices const& choices) {
    for (auto const& other : choices) {  // the first that is long enough is taken
      if (other.up_to >= choice.up_to) return;
      most = std::max(most, other.up_to);
    }
  };
  below(rules(collective).in(memory));
  if (memory != Memory::any) below(rules(collective).small);
  return most;
}

Selector Selector::derive(Tuning const& tuning, int ranks) {
  Selector selector;
  selector.rules(Collective::all_reduce) = derive_all_reduce(tuning, ranks);
  for (auto const collective : {Collective::reduce_scatter, Collective::all_gather, Collective::pull}) {
    auto const chunk = collective == Collective::reduce_scatter ? tuning.staged_bytes : tuning.chunk_bytes;
    selector.rules(collective) = {.small = {staging(tuning, ranks, tuning.staged_bytes, chunk)},
                                  .symmetric = always(Algorithm::direct, 0),
                                  .other = {staging(tuning, ranks, kAll, tuning.chunk_bytes)}};
  }
  selector.rules(Collective::reduce) = derive_reduce(tuning, ranks);
  derive_rooted(selector, tuning, ranks);
  auto const staged = always(Algorithm::staged, tuning.chunk_bytes);
  selector.rules(Collective::scan) = {.small = staged, .symmetric = staged, .other = staged};
  if (tuning.share_work) avoid_turns(selector, tuning, ranks);
  for (auto& rules : selector.rules_) rules.in_place = rules.symmetric;
  return selector;
}

}  // namespace weft::shm
