#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// What a task has to do with a cut: all that the cut needs (the cut as well) is before it, all that needs it after it.
enum class Side : unsigned char { neither, before, after };

/// By task.
[[nodiscard]] std::vector<Side> sides_of(Problem const& problem, TaskId cut);

/// Bytes that the task makes and that only what comes after the cut uses: held from the task's start until then.
[[nodiscard]] std::int64_t brings(Problem const& problem, TaskId task, std::vector<Side> const& side);

}  // namespace weft
