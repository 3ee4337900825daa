#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// The most bytes live when tasks run one after another in this order, resident ones included.
[[nodiscard]] std::int64_t serial_peak(Problem const& problem, std::vector<TaskId> const& order);

/// Bytes live while each task of this order runs, resident ones included.
[[nodiscard]] std::vector<std::int64_t> serial_live(Problem const& problem, std::vector<TaskId> const& order);

/// Bytes that every order takes at some time: while the task that uses most of them runs.
[[nodiscard]] std::int64_t serial_bound(Problem const& problem);

/// `order` with tasks moved for less memory: what only makes more of it (say, the gather of a weight) runs right before
/// the first task that needs it; and what leaves no more behind than it found, alone or with what follows it, as soon
/// as it can where it takes no more than `limit` meanwhile. O(tasks + edges), log factors aside.
[[nodiscard]] std::vector<TaskId> just_in_time(Problem const& problem, std::vector<TaskId> const& order,
                                               std::int64_t limit);

/// Tasks by a walk back from the results, each behind all that it needs: of what a task needs, first that which takes
/// the most memory to make.
[[nodiscard]] std::vector<TaskId> depth_first(Problem const& problem);

/// By rising length of the longest chain that leads to a task, as if there were a device for each.
[[nodiscard]] std::vector<TaskId> as_soon_as_possible(Problem const& problem);

/// The order of least peak of those that are known here; of all there are, for up to kMostExactTasks tasks
/// (exact_order.hpp). The same for the same problem.
[[nodiscard]] std::vector<TaskId> low_memory_order(Problem const& problem);

}  // namespace weft
