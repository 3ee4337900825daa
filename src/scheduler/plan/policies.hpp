#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/merge_collectives.hpp"
#include "scheduler/plan/run_tasks.hpp"

namespace weft {

/// Urgencies by place in the serial order.
[[nodiscard]] std::vector<double> urgency_by_order(std::vector<TaskId> const& serial);

/// Likewise, but for the tasks that the order computes in the last `rush` of all computing: of these, and of what is
/// sent among them, those are first that the longest paths lead from, so that what is sent at the end is sent while
/// something is left to compute.
[[nodiscard]] std::vector<double> urgency_with_rush(Problem const& problem, std::vector<TaskId> const& serial,
                                                    double rush);

/// For each task that sends (kNone for others): the task that has to have started before it may. Gathers (what was
/// needed by nothing before) wait for the first use of the `depth`-th before them.
[[nodiscard]] std::vector<TaskId> prefetch_gates(Problem const& problem, std::vector<TaskId> const& serial, int depth);

/// Likewise: no earlier than what is computed, in the serial order, within `lead` times its own length before its first
/// use.
[[nodiscard]] std::vector<TaskId> late_gates(Problem const& problem, std::vector<TaskId> const& serial, double lead);

/// Likewise: collectives, and what only prepares them (a weight's cast), are moved forward over what they do not wait
/// for, one after another, as far as the serial order's peak of memory allows; each waits for what it then stands
/// behind. The rule that PyTorch describes for Inductor ("reorder communication preserving peak memory"), written anew.
[[nodiscard]] std::vector<TaskId> raised_gates(Problem const& problem, std::vector<TaskId> const& serial);

}  // namespace weft
