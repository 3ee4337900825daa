#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// Returns `order` (all tasks, each behind what it waits for) with everything that is computed for reductions alone
/// (weights' gradients) right behind what it waits for.
[[nodiscard]] std::vector<TaskId> gradients_first(Problem const& problem, std::vector<TaskId> const& order);

/// Returns `order` with `wanted`, and all that it waits for, moved forward to `begin` where they stand there or later.
[[nodiscard]] std::vector<TaskId> pulled_forward(Problem const& problem, std::vector<TaskId> const& order,
                                                 std::size_t begin, TaskId wanted);

/// Returns `order` with `wanted`, what is computed for nothing else, and what waits for either, moved behind the task
/// at `place` where they stand before it.
[[nodiscard]] std::vector<TaskId> pushed_back(Problem const& problem, std::vector<TaskId> const& order, TaskId wanted,
                                              std::size_t place);

}  // namespace weft
