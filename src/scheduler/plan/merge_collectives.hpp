#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

struct MergeRules {
  /// The most bytes that are sent together: of gathers (all_gather, broadcast), and of all other collectives. Where it
  /// is 0 nothing is merged.
  std::int64_t gather_bytes = 0;
  std::int64_t reduce_bytes = 0;
  /// `capacity`: bytes that may be live at any time, resident ones included. `share`: while collectives wait for the
  /// launch they are merged into, how much of the memory that the unmerged order leaves free it may take; the rest is
  /// for launches that are sent while this one's results are in use.
  std::int64_t capacity = 0;
  double share = 0.5;
  /// A launch of gathers is no larger than this many times all that is gathered before it, so that little computing
  /// waits for the first gathers; any other launch no larger than this many times all that is sent after it, so that
  /// the last reductions are short. 0: no limit.
  double taper = 1;
};

/// Which collectives are sent together, and the order in which all tasks could then run one after another.
struct Merged {
  std::vector<std::vector<OpId>> launches{};  ///< for Problem
  std::vector<double> key{};                  ///< by operator: its place in the order, or its launch's place
  std::vector<bool> earlier{};                ///< by operator: whether that is before the place it had
};

/// Merges collectives of one kind and group that follow one another in `order` (of `problem`, where nothing is merged).
/// A collective is sent with the ones before it where all that it needs is there by then, or these are sent with it
/// where nothing needs them before. Neither makes a cycle, as `order` with those moves is an order in which all can
/// run.
[[nodiscard]] Merged merge_collectives(Problem const& problem, std::vector<TaskId> const& order,
                                       MergeRules const& rules);

/// The tasks of `problem`, which was made with merged.launches, sorted by the least key of their operators. A task that
/// has moved to an earlier place takes along what it waits for.
[[nodiscard]] std::vector<TaskId> serial_order_by(Merged const& merged, Problem const& problem);

}  // namespace weft
