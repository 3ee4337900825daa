#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/plan/problem.hpp"

namespace weft {

/// Tasks that shortest_makespan() takes on at most.
inline constexpr std::size_t kMostExhaustiveTasks = 12;

/// Seconds of the shortest schedule there is within the capacity, without merging and contention: the least over all
/// orders of starts, each task starting as soon as its order allows. Any schedule's order gives one that is no longer:
/// by induction no task starts later, and so none finds more memory taken.
///
/// None where there are more than kMostExhaustiveTasks, where more than `most_orders` would be looked at, or where no
/// order fits the capacity. For judging planners, not for planning.
[[nodiscard]] std::optional<double> shortest_makespan(Problem const& problem, std::int64_t capacity,
                                                      std::size_t most_orders = 3'000'000);

}  // namespace weft
