#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// The peak: the most bytes that are live when tasks run one after another in this order, resident ones included.
[[nodiscard]] std::int64_t serial_peak(Problem const& problem, std::vector<TaskId> const& order);

/// Bytes that are live while each task of this order runs, by place, resident ones included.
[[nodiscard]] std::vector<std::int64_t> serial_live(Problem const& problem, std::vector<TaskId> const& order);

/// A lower bound of every order's peak: what the task that uses the most bytes takes while it runs.
[[nodiscard]] std::int64_t serial_bound(Problem const& problem);

/// `order` with tasks moved so that less memory is taken. A task that only adds memory (say, the gather of a weight)
/// runs right before the first task that needs it. A task that leaves no more behind than it found, alone or together
/// with what follows it, runs as soon as it can without taking more than `limit` meanwhile. O(tasks + edges), log
/// factors aside.
[[nodiscard]] std::vector<TaskId> just_in_time(Problem const& problem, std::vector<TaskId> const& order,
                                               std::int64_t limit);

/// An order by a walk back from the results, each task behind all that it needs: of the tasks that one needs, that
/// which takes the most memory to make comes first.
[[nodiscard]] std::vector<TaskId> depth_first(Problem const& problem);

/// Sorts tasks by the length of the longest chain that leads to them, as if there were a device for each.
[[nodiscard]] std::vector<TaskId> as_soon_as_possible(Problem const& problem);

/// The best of the orders above; up to kMostExactTasks tasks the best order there is (exact_order.hpp). Depends on the
/// problem alone.
[[nodiscard]] std::vector<TaskId> low_memory_order(Problem const& problem);

}  // namespace weft
