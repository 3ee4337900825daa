#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/merge_collectives.hpp"
#include "scheduler/plan/run_tasks.hpp"

namespace weft {

/// The urgency of each task is its place in the serial order.
[[nodiscard]] std::vector<double> urgency_by_order(std::vector<TaskId> const& serial);

/// The same, except at the end of the step: among the tasks of the last `rush` (a share) of all computing, and what is
/// sent among them, those come first from which the longest paths lead. So what is sent at the end is sent while
/// something is left to compute.
[[nodiscard]] std::vector<double> urgency_with_rush(Problem const& problem, std::vector<TaskId> const& serial,
                                                    double rush);

/// Gates for gathers. For each task that sends (kNone for others): the task that has to have started before it may. A
/// gather waits until the first use of the `depth`-th gather before it has started.
[[nodiscard]] std::vector<TaskId> prefetch_gates(Problem const& problem, std::vector<TaskId> const& serial, int depth);

/// Gates that keep sends late: a send starts no earlier than the task that is computed, in the serial order, `lead`
/// times the send's own length before its first use.
[[nodiscard]] std::vector<TaskId> late_gates(Problem const& problem, std::vector<TaskId> const& serial, double lead);

/// Gates by moved collectives: collectives, and what only prepares them (a weight's cast), are moved forward, one after
/// another, over what they do not wait for, as far as the serial order's peak of memory allows. Each then waits for the
/// task that it stands behind. This is the rule that PyTorch describes for Inductor ("reorder communication preserving
/// peak memory"), written anew.
[[nodiscard]] std::vector<TaskId> raised_gates(Problem const& problem, std::vector<TaskId> const& serial);

}  // namespace weft
