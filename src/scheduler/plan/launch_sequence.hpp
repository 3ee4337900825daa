#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/plan/send_chain.hpp"

namespace weft {

struct SequenceRules {
  std::int64_t capacity = 0;
  double contention = 0;
  double below_s = 0;                     ///< a sequence that takes as long as this is not looked for
  std::size_t most_states = 24;           ///< kept of all that have sent the same units: the best ones
  double size_growth = 1.2;               ///< each size of a launch that is tried is larger by this factor
  std::size_t most_launches = 3'000'000;  ///< after trying this many, about 2 s, the search gives up
  double memory_slack = 1. / 96;          ///< share of the capacity: memory that differs by less counts as equal
};

/// When a launch is sent: units [begin, end) of gathers or of reductions.
struct SequenceLaunch {
  bool gathers = false;
  std::size_t begin = 0;
  std::size_t end = 0;
  double start_s = 0;
  double end_s = 0;
  double idle_s = 0;         ///< for how long the link was idle before it while something was left to compute
  std::size_t computed = 0;  ///< the segment that ran, or was the next one, when the link fell idle before it
};

struct LaunchSequence {
  std::vector<SequenceLaunch> launches{};
  std::vector<double> starts{};  ///< when each segment starts
  double seconds = 0;
};

/// Finds the launches with which a chain takes the least time, by dynamic programming.
///
/// Whenever the link is idle, the search decides which units are sent next, gathers or reductions, and how many; or
/// that the link waits until more of them can be sent. What can follow, memory included, depends only on what was sent,
/// on the time, and on how far computing has come. So, of two ways to have sent the same units, one is dropped if it is
/// later, has computed less and takes as much memory. Computing goes on whenever what it needs is there and has room;
/// launches start where there is room for what they make. This finds good sequences but proves nothing: sizes and
/// states are thinned, as the rules say. Deterministic.
///
/// None where nothing shorter than rules.below_s was found, or where rules.most_launches did not suffice.
[[nodiscard]] std::optional<LaunchSequence> best_launches(SendChain const& chain, SequenceRules const& rules);

}  // namespace weft
