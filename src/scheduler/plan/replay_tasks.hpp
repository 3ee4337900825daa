#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// Like replay_schedule(), for tasks that start in `order`.
/// Pre: run one after another in that order, they take no more than the capacity.
[[nodiscard]] double replay_tasks(Problem const& problem, std::vector<TaskId> const& order, std::int64_t capacity,
                                  double contention, Disturbance const& disturbance);

}  // namespace weft
