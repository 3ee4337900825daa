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
  std::size_t most_states = 24;           ///< of those that have sent the same, the best ones are followed
  double size_growth = 1.2;               ///< sizes of a launch that are tried at one moment
  std::size_t most_launches = 3'000'000;  ///< that are tried: the search is given up beyond, after about 2 s
  double memory_slack = 1. / 96;  ///< of the capacity: states that differ by no more take as much memory as each other
};

/// When a launch is sent: units [begin, end) of gathers or of reductions.
struct SequenceLaunch {
  bool gathers = false;
  std::size_t begin = 0;
  std::size_t end = 0;
  double start_s = 0;
  double end_s = 0;
  double idle_s = 0;         ///< of the link before it, while there was something to compute
  std::size_t computed = 0;  ///< the segment that ran, or was the next one, when the link fell idle before it
};

struct LaunchSequence {
  std::vector<SequenceLaunch> launches{};
  std::vector<double> starts{};  ///< of segments
  double seconds = 0;
};

/// The launches with which a chain takes the least time, by dynamic programming.
///
/// Whenever the link is idle it is decided which units are sent next, gathers or reductions, and how many; or that the
/// link waits until more of them can be sent. What was sent, the time, and how far computing has come: on that alone
/// depends what can follow, memory included. Of two ways to have sent the same one is dropped that is later, has
/// computed less and takes as much memory. Computing goes on whenever what it needs is there and has room; launches
/// start where there is room for what they make. It is a search all the same, and no proof: sizes and states are
/// thinned, as the rules say. Deterministic.
/// None where nothing shorter than rules.below_s was found, or not with rules.most_launches.
[[nodiscard]] std::optional<LaunchSequence> best_launches(SendChain const& chain, SequenceRules const& rules);

}  // namespace weft
