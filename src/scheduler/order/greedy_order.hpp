#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// A list schedule that looks at memory alone: of the tasks that could run next it always takes the one after which
/// least is live; of equals the one that takes least while it runs, then the first. O((tasks + edges + uses) x log
/// tasks).
[[nodiscard]] std::vector<TaskId> greedy_order(Problem const& problem);

}  // namespace weft
