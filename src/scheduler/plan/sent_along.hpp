#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// The part of each task that the bounds count, by id.
struct BoundBodies {
  std::vector<double> seconds;  ///< seconds of the task that no merging saves
  std::vector<bool> launches;   ///< sends whose latency is among those seconds; no two of them can be one launch
};

/// By task, for each task of `path` (each needs the one before it): the least seconds that the busier link sends before
/// the task can start (from_end: after it has ended). That is all sending that the task needs (from_end: that needs
/// it), and one latency for each kind and group of which something is sent. 0 for all other tasks. O(tasks + edges).
[[nodiscard]] std::vector<double> sent_along(Problem const& problem, BoundBodies const& bodies,
                                             std::vector<TaskId> const& path, bool from_end);

/// The same for all tasks: for those not on the path, the most sending on any path to them (from_end: from them).
[[nodiscard]] std::vector<double> sent_beside(Problem const& problem, BoundBodies const& bodies,
                                              std::vector<TaskId> const& path, bool from_end);

}  // namespace weft
