#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// Whole graphs of up to so many tasks are ordered exactly.
inline constexpr std::size_t kMostExactTasks = 24;

/// The order in which tasks run one after another with the least peak of live bytes there is, found by a best-first
/// search over sets of tasks that were run. A task that frees no less than it makes and takes no more meanwhile than
/// was taken before runs at once: whatever order follows, running it first lowers the memory of all later states, since
/// what it frees only grows as others end.
///
/// None where there are more than kMostExactTasks, or where the search would look at more than `most_states` sets.
[[nodiscard]] std::optional<std::vector<TaskId>> exact_order(Problem const& problem,
                                                             std::size_t most_states = 2'000'000);

/// That of a part, `tasks`, while all others keep their places: those that are `done` (by task) run before, the rest
/// after. None where there are more than 64, or as above.
[[nodiscard]] std::optional<std::vector<TaskId>> exact_order_of(Problem const& problem, std::span<TaskId const> tasks,
                                                                std::vector<bool> const& done, std::size_t most_states);

}  // namespace weft
