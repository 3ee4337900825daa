#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

struct MergeRules {
  /// Of what is sent together at most, of gathers (all_gather, broadcast) and of all others; nothing is merged where it
  /// is 0.
  std::int64_t gather_bytes = 0;
  std::int64_t reduce_bytes = 0;
  /// Bytes that may be live at any time, resident ones included, and how much of what the unmerged order leaves of that
  /// while a launch waits may be taken by it: the rest is for those that are sent while it is used.
  std::int64_t capacity = 0;
  double share = 0.5;
  /// A launch of gathers is no larger than this many times all that is gathered before it, another one than all that is
  /// sent after it: little computing waits for the first gathers, and the last reductions are short. 0: however large.
  double taper = 1;
};

/// Which collectives are sent together, and the order in which all tasks could then run one after another.
struct Merged {
  std::vector<std::vector<OpId>> launches{};  ///< for Problem
  std::vector<double> key{};                  ///< of each operator: its place in the order, or its launch's
  std::vector<bool> earlier{};                ///< of each operator: that is before the place it had
};

/// Merges collectives of one kind and group that follow one another in `order` (of `problem`, where nothing is merged):
/// each is sent with the ones before it where all that it needs is there by then, or they with it where nothing needs
/// them before. Neither makes a cycle, as `order` with those moves is an order in which all can run.
[[nodiscard]] Merged merge_collectives(Problem const& problem, std::vector<TaskId> const& order,
                                       MergeRules const& rules);

/// The tasks of `problem`, made with merged.launches, by the least key of their operators; what has moved to an earlier
/// place takes along what it waits for.
[[nodiscard]] std::vector<TaskId> serial_order_by(Merged const& merged, Problem const& problem);

}  // namespace weft
