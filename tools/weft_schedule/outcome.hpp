#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/schedule.hpp"
#include "weft_schedule/input.hpp"

namespace weft::schedule_tool {

/// Seconds that a plan takes where operators take other times than planned (replay_schedule()).
struct Replays {
  double noise_s = 0;           ///< each 20 % more or less, by chance
  double slow_links_s = 0;      ///< collectives 20 % more, all others 20 % less
  double slow_computing_s = 0;  ///< the reverse
};

/// A case and its plans, one for each policy.
struct Outcome {
  Case planned{};
  std::string label{};  ///< "" or the changes
  std::int64_t capacity = 0;
  std::int64_t resident_bytes = 0;
  std::int64_t serial_peak_bytes = 0;
  std::vector<Schedule> schedules{};
  std::vector<Replays> replays{};  ///< of each schedule, where they were asked for

  /// Weft's, or the fastest where it was not asked for.
  [[nodiscard]] Schedule const& main_schedule() const;
};

/// Progress goes to standard error where that is a terminal.
/// @throws Error{out_of_memory} saying by how much the memory is short; Error{invalid_argument} as plan_schedule().
[[nodiscard]] Outcome plan_case(Case planned, Settings const& settings, std::string label);

}  // namespace weft::schedule_tool
