#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// exact_order() orders whole graphs of up to this many tasks.
inline constexpr std::size_t kMostExactTasks = 24;

/// Orders the tasks, run one after another, so that the peak of live bytes is as low as it can be. A best-first search
/// over the sets of tasks that have run. A task that frees at least as much as it makes, and stays within the peak so
/// far while it runs, is run at once: whatever order follows, running it first lowers the memory of all later states,
/// since what it frees only grows as others end.
///
/// None where there are more than kMostExactTasks tasks, or where the search would look at more than `most_states`
/// sets.
[[nodiscard]] std::optional<std::vector<TaskId>> exact_order(Problem const& problem,
                                                             std::size_t most_states = 2'000'000);

/// Orders only `tasks`; all others keep their places: those that are `done` (by task) run before them, the rest after
/// them. None where there are more than 64 tasks to order, or more than `most_states` sets.
[[nodiscard]] std::optional<std::vector<TaskId>> exact_order_of(Problem const& problem, std::span<TaskId const> tasks,
                                                                std::vector<bool> const& done, std::size_t most_states);

}  // namespace weft
