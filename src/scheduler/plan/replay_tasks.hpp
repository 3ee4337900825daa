#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// replay_schedule() of tasks that start in `order`.
/// Pre: one after another in that order they take no more than the capacity.
[[nodiscard]] double replay_tasks(Problem const& problem, std::vector<TaskId> const& order, std::int64_t capacity,
                                  double contention, Disturbance const& disturbance);

}  // namespace weft
