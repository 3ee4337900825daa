#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// The least that can be live while a task runs, whatever has run before it.
struct LeastLive {
  std::int64_t bytes = 0;   ///< resident ones included
  std::vector<bool> ran{};  ///< by task: what has run by then, with all that it waits for
};

/// What ran before `task` is a set of tasks that holds those it waits for and none that waits for it, each with what
/// itself waits for. Bytes live are what such a set cuts: a storage counts where it was made and not all its users ran.
/// The least of them is a minimum cut, found as a maximum flow. No order of all tasks has a lower peak than this.
[[nodiscard]] LeastLive least_live(Problem const& problem, TaskId task);

}  // namespace weft
