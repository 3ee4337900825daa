#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/run_tasks.hpp"

namespace weft {

/// The tasks of a run in another order of starts, with which the run takes as long and, where operators take other
/// times, mostly less: sends start later by a half of what delays nothing. What is computed in the meantime stands
/// before them then, and does not wait for links that are late; half of the time is left for what is late itself.
/// Sends that free more memory than they take (reductions) stay, as others may wait for it.
[[nodiscard]] std::vector<TaskId> loosened_order(Problem const& problem, Run const& run);

}  // namespace weft
