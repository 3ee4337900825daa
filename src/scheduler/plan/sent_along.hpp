#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// What the bounds count of each task, by id.
struct BoundBodies {
  std::vector<double> seconds;  ///< that no merging saves
  std::vector<bool> launches;   ///< sends whose latency is among them: no two of these can be one launch
};

/// Of each task of `path` (each needs the one before it) the seconds that the busier link sends at the least before the
/// task can start, or, `from_end`, after it has ended: all that it needs (that needs it), and a latency for each kind
/// and group of which something is sent. 0 for all other tasks. O(tasks + edges).
[[nodiscard]] std::vector<double> sent_along(Problem const& problem, BoundBodies const& bodies,
                                             std::vector<TaskId> const& path, bool from_end);

/// The same of all tasks: of those that are not on the path the most sending on any path to each of them (from it).
[[nodiscard]] std::vector<double> sent_beside(Problem const& problem, BoundBodies const& bodies,
                                              std::vector<TaskId> const& path, bool from_end);

}  // namespace weft
