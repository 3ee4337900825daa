#include "collectives/shm/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "collectives/shm/feeds.hpp"
#include "collectives/shm/laboratory.hpp"
#include "collectives/shm/staging_ring.hpp"

namespace weft::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRounds = 6;
/// Time for small calls and those in symmetric memory.
constexpr std::chrono::milliseconds kSmallTime{50};
/// Time until it has been found out whether long calls in symmetric memory are better staged.
constexpr std::chrono::milliseconds kLongTime{56};
/// The largest limit that is measured. Those above it would take all the time there is, and stay where they were
/// derived.
constexpr std::size_t kMostMeasured = std::size_t{1} << 20;
/// A synchronisation of so many nanoseconds, a hundred times what ranks on cores of their own need, shows that
/// something else runs there. What was measured then says more about that than about the machine.
constexpr double kBusy = 20'000;

/// For choose_polling(), choose_streaming() and choose_taking(), which try both ways in turns.
constexpr int kPollingTurns = 10;
constexpr int kLeastPollingWins = 8;
constexpr double kLeastPollingGain = 0.05;
constexpr int kStreamingTurns = 2;
constexpr int kTakingTurns = 2;
/// More than stays in most L2 caches.
constexpr std::size_t kTakenBytes = std::size_t{2} << 20;

std::size_t feed_bytes(Tuning const& tuning) {
  return tuning.feed_places * Feeds::kSlotBytes;
}

/// Experiments at every limit between neighbouring choices, from below and above.
std::vector<Experiment> plan(Selector const& derived, Tuning const& tuning) {
  std::vector<Experiment> experiments;
  for (auto const collective : kDirect) {
    auto const& rules = derived.rules(collective);
    for (std::size_t index = 0; index < rules.small.size() && rules.small[index].up_to > 0; ++index) {
      auto const& choice = rules.small[index];
      if (choice.up_to > kMostMeasured) break;
      auto const last = index + 1 == rules.small.size() || rules.small[index + 1].up_to == 0;
      auto const next = last ? rules.symmetric.front().algorithm : rules.small[index + 1].algorithm;
      auto const limit = std::max<std::size_t>(4096, choice.up_to / 4096 * 4096);
      for (auto const bytes : {limit, 2 * limit}) {
        for (auto const algorithm : {choice.algorithm, next}) {
          experiments.push_back({.collective = collective, .algorithm = algorithm, .bytes = bytes});
          if (last && collective == Collective::all_reduce)
            experiments.push_back(
                {.collective = collective, .algorithm = algorithm, .bytes = bytes, .place = Place::in_place});
        }
        if (collective == Collective::broadcast && tuning.group_ranks > 0)
          experiments.push_back({.collective = collective, .algorithm = Algorithm::two_level, .bytes = bytes});
      }
    }
  }
  return experiments;
}

/// Experiments with long calls of each of `collectives`: staged or fed, and copied once by `other`.
template <typename Collectives>
std::vector<Experiment> plan_long(Selector const& derived, Collectives const& collectives, Algorithm other,
                                  std::size_t bytes, Place place) {
  std::vector<Experiment> experiments;
  for (auto const collective : collectives) {
    for (auto const algorithm : {derived.rules(collective).other[0].algorithm, other})
      experiments.push_back({.collective = collective, .algorithm = algorithm, .bytes = bytes, .place = place});
  }
  return experiments;
}

/// Whether some limit has moved up as far as it can, so that it may belong further up.
bool reaches_further(Selector const& derived, Selector const& tuned, std::size_t largest_block) {
  return std::any_of(kDirect.begin(), kDirect.end(), [&](Collective collective) {
    auto const before = derived.staged_up_to(collective);
    auto const after = tuned.staged_up_to(collective);
    return after > before && after >= std::min(before << kMostUp, largest_block);
  });
}

/// `derived`, but with `one`'s algorithm for every call in symmetric memory, also where the limits of small calls end.
Selector only_long(Experiment const& one, Selector const& derived) {
  auto selector = derived;
  auto& rules = selector.rules(one.collective);
  Choice choice{0, 0, one.algorithm};
  if (choice.algorithm == rules.other[0].algorithm) choice = rules.other[0];
  choice.up_to = Choice::kUnlimited;
  rules.small = {};
  rules.symmetric = {choice};
  return selector;
}

/// `derived`, but with `one`'s algorithm for every call in private memory.
Selector only_private(Experiment const& one, Selector const& derived) {
  auto selector = derived;
  auto& rules = selector.rules(one.collective);
  auto choice = rules.other[0];
  if (choice.algorithm != one.algorithm) choice = {0, 0, one.algorithm};
  choice.up_to = Choice::kUnlimited;
  rules.small = {};
  rules.other = {choice};
  return selector;
}

/// `derived`, but with `one`'s algorithm for every call.
Selector only(Experiment const& one, Selector const& derived, std::size_t largest_block) {
  if (one.place == Place::symmetric_long) return only_long(one, derived);
  if (!is_symmetric(one.place)) return only_private(one, derived);
  auto selector = derived;
  auto& rules = selector.rules(one.collective);
  if (one.algorithm == Algorithm::direct) {
    rules.small = {};
    return selector;
  }
  auto const like = one.algorithm == Algorithm::two_level ? Algorithm::fed : one.algorithm;
  auto choice =
      *std::find_if(rules.small.begin(), rules.small.end(), [&](Choice const& each) { return each.algorithm == like; });
  choice.algorithm = one.algorithm;
  if (choice.chunk_bytes == choice.up_to && choice.algorithm != Algorithm::swapped)
    choice.chunk_bytes = std::min(one.bytes, largest_block);
  choice.up_to = Choice::kUnlimited;
  rules.small = {choice};
  return selector;
}

/// Whether two ranks come together faster without a fence; rank 0's clock counts. Where fences are dear they take 10 to
/// 40 % of the time, elsewhere they save as much. A gain that not nearly all turns show is noise.
bool choose_polling(ShmBackend& scratch, Laboratory& laboratory) {
  double fenced = Experiment::kUnknown;
  double at_once = Experiment::kUnknown;
  int wins = 0;
  for (int turn = 0; turn < kPollingTurns; ++turn) {
    scratch.poll_at_once(false);
    auto const with = laboratory.time_line();
    scratch.poll_at_once(true);
    auto const without = laboratory.time_line();
    fenced = std::min(fenced, with);
    at_once = std::min(at_once, without);
    wins += without < with ? 1 : 0;
  }
  auto const chosen = laboratory.agree(wins >= kLeastPollingWins && at_once < (1 - kLeastPollingGain) * fenced);
  scratch.poll_at_once(chosen);
  return chosen;
}

/// From how many bytes on results should bypass the caches. Doubled as long as a call gains kLeastGain by keeping
/// results there, to Tuning::most_cached_bytes at most.
std::size_t choose_streaming(ShmBackend& scratch, Laboratory& laboratory, Selector const& derived, Tuning const& tuning,
                             Clock::time_point until) {
  auto bytes = tuning.streaming_bytes;
  while (2 * bytes <= tuning.most_cached_bytes && laboratory.get_private(bytes)) {
    Experiment cached{.collective = Collective::pull,
                      .algorithm = derived.rules(Collective::pull).other[0].algorithm,
                      .bytes = bytes,
                      .place = Place::private_long};
    auto streamed = cached;
    scratch.use(only_private(cached, derived));
    for (int turn = 0; turn < kStreamingTurns && laboratory.agree(turn == 0 || Clock::now() < until); ++turn) {
      scratch.stream_from(Choice::kUnlimited);
      laboratory.time(cached);
      scratch.stream_from(0);
      laboratory.time(streamed);
    }
    auto const gains = pays(cached.call(), laboratory.loop(cached, 0), streamed.call(), laboratory.loop(streamed, 0));
    if (!laboratory.agree(gains)) break;
    bytes *= 2;
    if (!laboratory.agree(Clock::now() < until)) break;
  }
  return bytes;
}

/// Up to how many bytes calls take the lines they read (see Tuning::take_bytes): whatever stays in the caches, what
/// stays in a core's own, or nothing. Where a gain is presumed, taking is given up only for a clear loss: on virtual
/// machines ranks that share a core, where it does not matter, may lie far apart soon after.
std::size_t choose_taking(ShmBackend& scratch, Laboratory& laboratory, Selector const& derived, Tuning const& tuning) {
  auto const takes = [&](Collective collective, std::size_t bytes, bool presumed) {
    Experiment left{.collective = collective, .algorithm = Algorithm::direct, .bytes = bytes};
    auto taken = left;
    scratch.use(only_long(left, derived));
    for (int turn = 0; turn < kTakingTurns; ++turn) {
      scratch.take_up_to(0);
      laboratory.time(left);
      scratch.take_up_to(Choice::kUnlimited);
      laboratory.time(taken);
    }
    auto const left_loop = laboratory.loop(left, 0);
    auto const taken_loop = laboratory.loop(taken, 0);
    return laboratory.agree(presumed ? !pays(left.call(), left_loop, taken.call(), taken_loop)
                                     : pays(taken.call(), taken_loop, left.call(), left_loop));
  };
  constexpr std::size_t kShort = std::size_t{256} << 10;
  auto const chosen = !takes(Collective::pull, kShort, tuning.take_bytes > 0) ? 0
                      : takes(Collective::all_reduce, kTakenBytes, false)     ? Choice::kUnlimited
                                                                              : tuning.l2_bytes / 4 * 3;
  scratch.take_up_to(chosen);
  return chosen;
}

/// Times every experiment by turns until `until`, at most kMostRounds times.
void run(std::vector<Experiment>& experiments, ShmBackend& scratch, Laboratory& laboratory, Selector const& derived,
         Tuning const& tuning, Clock::time_point until) {
  auto const largest_block = StagingRing(nullptr, tuning.ring_bytes).max_block();
  for (std::size_t turn = 0; turn < kMostRounds * experiments.size(); ++turn) {
    if (!laboratory.agree(Clock::now() < until)) break;
    auto& one = experiments[turn % experiments.size()];
    scratch.use(only(one, derived, largest_block));
    laboratory.time(one);
  }
}

/// Leaves out collectives for which there was no time to run every experiment; returns whether any is left.
bool keep_complete(std::vector<Experiment>& experiments) {
  auto const unknown = experiments;
  auto const is_incomplete = [&](Experiment const& one) {
    return std::any_of(unknown.begin(), unknown.end(), [&](Experiment const& other) {
      return other.collective == one.collective && !other.is_known();
    });
  };
  std::erase_if(experiments, is_incomplete);
  return !experiments.empty();
}

/// Adds a line through what was measured of each algorithm; with a single size, the line through zero and that.
void add_costs(std::vector<Experiment> const& experiments, Laboratory const& laboratory, CostModel& model) {
  std::map<std::tuple<Place, Collective, Algorithm>, std::pair<std::vector<Sample>, std::vector<Sample>>> samples;
  for (auto const& one : experiments) {
    if (!one.is_known()) continue;
    auto& [calls, loops] = samples[{one.place, one.collective, one.algorithm}];
    calls.push_back(one.call());
    loops.push_back(laboratory.loop(one, model.synchronisation_ns));
  }
  auto const line = [](std::vector<Sample> const& of) {
    return of.size() == 1 ? Line{0, of[0].ns / static_cast<double>(of[0].bytes)} : fit(of);
  };
  for (auto const& [which, of_it] : samples) {
    auto const [place, collective, algorithm] = which;
    model.of(collective, algorithm, place) = {line(of_it.first), line(of_it.second)};
  }
}

/// Measures what calls in private memory cost, and where results should bypass the caches, as far as there is time
/// until `until`.
void measure_large(ShmBackend& scratch, Selector const& derived, Tuning const& tuning,
                   std::chrono::milliseconds timeout, Clock::time_point until, CostModel& model) {
  Laboratory laboratory(scratch, kLine, feed_bytes(tuning), timeout);
  if (!laboratory.agree(Clock::now() < until)) return;
  model.streaming_bytes = tuning.streaming_bytes;
  if (tuning.reads_peers && tuning.streaming_bytes > kPrivateBytes && laboratory.get_private(kPrivateBytes)) {
    constexpr std::array kTimed{Collective::gather, Collective::pull, Collective::all_gather};  // see stand_in()
    auto experiments = plan_long(derived, kTimed, Algorithm::fetched, kPrivateBytes, Place::private_long);
    run(experiments, scratch, laboratory, derived, tuning, until);
    add_costs(experiments, laboratory, model);
  }
  if (laboratory.agree(Clock::now() < until))
    model.streaming_bytes = choose_streaming(scratch, laboratory, derived, tuning, until);
}

}  // namespace

std::string describe_machine(Topology const& topology, Tuning const& tuning, int ranks, std::vector<int> const& cpus,
                             std::size_t distance) {
  return fmt::format(
      "{} ranks on cpus {} of {}, L2 {}K, L3 {}K, lines within {} ns, staging {}K, feeds {}K by {}K, groups of {}{}",
      ranks, format_ranges(cpus), processor_name(), topology.l2_bytes >> 10U, topology.l3_bytes >> 10U, distance,
      tuning.ring_bytes >> 10U, feed_bytes(tuning) >> 10U, (Feeds::kMostSlots * Feeds::kSlotBytes) >> 10U,
      tuning.group_ranks, tuning.reads_peers ? "" : ", not in one another's private memory");
}

CostModel measure(ShmBackend& scratch, Selector const& derived, Tuning const& tuning,
                  std::chrono::milliseconds timeout) {
  auto const start = Clock::now();
  auto experiments = plan(derived, tuning);
  auto most_bytes = kTakenBytes;
  for (auto const& one : experiments) most_bytes = std::max(most_bytes, one.bytes);
  Laboratory laboratory(scratch, most_bytes, feed_bytes(tuning), timeout);

  // Ranks that sleep soon fence in any case.
  auto const polls_long = tuning.inline_patience.spins + tuning.inline_patience.glances > kFewSpins;
  auto const polls_at_once = scratch.size() == 2 && polls_long && choose_polling(scratch, laboratory);
  auto const take_bytes = choose_taking(scratch, laboratory, derived, tuning);
  run(experiments, scratch, laboratory, derived, tuning, start + kSmallTime);

  CostModel model;
  auto const synchronisation = laboratory.time_synchronisation();
  if (!laboratory.agree(synchronisation <= kBusy && keep_complete(experiments))) return model;
  model.synchronisation_ns = synchronisation;
  model.polls_at_once = polls_at_once;
  model.take_bytes = take_bytes;
  add_costs(experiments, laboratory, model);
  auto const largest_block = StagingRing(nullptr, tuning.ring_bytes).max_block();
  if (laboratory.agree(reaches_further(derived, tune(derived, model, largest_block), largest_block))) {
    auto longer = plan_long(derived, kDirect, Algorithm::direct, kLongBytes, Place::symmetric_long);
    run(longer, scratch, laboratory, derived, tuning, start + kLongTime);
    add_costs(longer, laboratory, model);
  }
  measure_large(scratch, derived, tuning, timeout, start + kMeasuringTime, model);
  return model;
}

}  // namespace weft::shm
