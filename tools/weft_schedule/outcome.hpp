#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/plan_diff.hpp"
#include "weft/schedule.hpp"
#include "weft_schedule/advice.hpp"
#include "weft_schedule/input.hpp"

namespace weft::schedule_tool {

/// Seconds that a plan takes where operators take other times than planned (replay_schedule()).
struct Replays {
  double noise_s = 0;           ///< each 20 % more or less, by chance: the mean of several draws
  double slow_links_s = 0;      ///< collectives 20 % more, all others 20 % less
  double slow_computing_s = 0;  ///< the reverse
};

/// What --recompute auto did to a step that did not fit.
struct Recomputed {
  std::vector<std::string> operators{};  ///< run again
  double seconds = 0;                    ///< that they take
  std::int64_t bytes_before = 0;         ///< that the step took, one operator after another
};

/// A case and its plans, one for each policy.
struct Outcome {
  Case planned{};
  std::string label{};  ///< "" or the changes
  std::int64_t capacity = 0;
  std::int64_t resident_bytes = 0;
  std::int64_t serial_peak_bytes = 0;
  std::optional<Recomputed> recomputed{};  ///< where something is
  std::vector<Schedule> schedules{};
  std::vector<Replays> replays{};      ///< of each schedule, where they were asked for
  Advice advice{};                     ///< of main_schedule()
  std::optional<PlanDiff> measured{};  ///< main_schedule() beside a trace, where one was given

  /// Weft's, or the fastest where it was not asked for.
  [[nodiscard]] Schedule const& main_schedule() const;
};

/// What --what-if comes to.
struct WhatIf {
  std::string changes{};
  std::optional<Outcome> outcome{};  ///< none where the step does not fit then
  std::string misfit{};              ///< what is short then
};

/// A plan that takes less than its bound: one of the two is wrong, and so is what would be told about them.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

/// @throws InternalError where the schedule is shorter than any can be, by more than rounding.
void check_against_bound(Schedule const& schedule);

/// Progress goes to standard error where that is a terminal. `measured`, where there is one, is set beside the plan.
/// @throws Error{out_of_memory} saying by how much the memory is short; Error{invalid_argument} as plan_schedule();
/// InternalError as check_against_bound().
[[nodiscard]] Outcome plan_case(Case planned, Settings const& settings, std::string label,
                                ImportedTrace const* measured = nullptr);

}  // namespace weft::schedule_tool
