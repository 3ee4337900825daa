#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// A list schedule by memory alone: of the tasks that could run next always the one after which least is live; of
/// equals the one that takes least meanwhile, then the first. O((tasks + edges + uses) x log tasks).
[[nodiscard]] std::vector<TaskId> greedy_order(Problem const& problem);

}  // namespace weft
