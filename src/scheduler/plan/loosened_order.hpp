#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/run_tasks.hpp"

namespace weft {

/// The tasks of a run in another order of starts. The run takes as long with it, and mostly less where operators take
/// other times than planned. Each send starts later, by half of the time by which it could be late without delaying
/// anything. What is computed in that time then stands before the send and does not wait for a late link; the other
/// half is left in case the send itself is late. Sends that free more memory than they take (reductions) stay in place,
/// as other tasks may wait for that memory.
[[nodiscard]] std::vector<TaskId> loosened_order(Problem const& problem, Run const& run);

}  // namespace weft
