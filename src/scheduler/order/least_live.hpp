#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// The least that can be live while a task runs, whatever has run before it.
struct LeastLive {
  std::int64_t bytes = 0;   ///< resident ones included
  std::vector<bool> ran{};  ///< by task: whether it has run by then
};

/// The tasks that ran before `task` are a set that holds all that it waits for and nothing that waits for it, and that
/// holds, with each task, all that this one waits for. Such a set cuts the graph: a storage is live where it was made
/// and some of its users have not run. The cut with the fewest live bytes is a minimum cut, found as a maximum flow. No
/// order of all tasks has a lower peak than this.
[[nodiscard]] LeastLive least_live(Problem const& problem, TaskId task);

}  // namespace weft
