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

/// Seconds that a plan takes if operators take other times than planned (replay_schedule()).
struct Replays {
  double noise_s = 0;           ///< each takes 20 % more or less, at random: the mean of several draws
  double slow_links_s = 0;      ///< collectives take 20 % more, all others 20 % less
  double slow_computing_s = 0;  ///< the reverse
};

/// What `--recompute auto` did to a step that did not fit.
struct Recomputed {
  std::vector<std::string> operators{};  ///< those that run again
  double seconds = 0;                    ///< the time they take
  std::int64_t bytes_before = 0;         ///< the step's memory before, with one operator after another
};

/// A case and its plans, one for each policy.
struct Outcome {
  Case planned{};
  std::string label{};  ///< the changes of --what-if; empty: none
  std::int64_t capacity = 0;
  std::int64_t resident_bytes = 0;
  std::int64_t serial_peak_bytes = 0;
  std::optional<Recomputed> recomputed{};  ///< if something is recomputed
  std::vector<Schedule> schedules{};
  std::vector<Replays> replays{};      ///< one for each schedule, if asked for
  Advice advice{};                     ///< for main_schedule()
  std::optional<PlanDiff> measured{};  ///< main_schedule() compared with a trace, if one was given

  /// Weft's schedule, or the fastest one if Weft's was not asked for.
  [[nodiscard]] Schedule const& main_schedule() const;
};

/// The result of --what-if.
struct WhatIf {
  std::string changes{};
  std::optional<Outcome> outcome{};  ///< none if the changed step does not fit
  std::string misfit{};              ///< then: what is too small
};

/// A plan takes less than its lower bound, so one of the two is wrong, and any report about them would be, too.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

/// @throws InternalError if the schedule is shorter than its lower bound by more than rounding.
void check_against_bound(Schedule const& schedule);

/// Plans a case. Progress goes to standard error if that is a terminal. The plan is compared with `measured` if there
/// is one. @throws Error{out_of_memory} saying how much memory is missing; Error{invalid_argument} as plan_schedule();
/// InternalError as check_against_bound().
[[nodiscard]] Outcome plan_case(Case planned, Settings const& settings, std::string label,
                                ImportedTrace const* measured = nullptr);

}  // namespace weft::schedule_tool
