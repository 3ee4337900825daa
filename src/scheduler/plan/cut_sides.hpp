#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// Where a task stands to a cut, which is a task, too: before it where the cut needs it (and the cut itself), after it
/// where it needs the cut.
enum class Side : unsigned char { neither, before, after };

/// The side of each task, by id.
[[nodiscard]] std::vector<Side> sides_of(Problem const& problem, TaskId cut);

/// Bytes that `task` makes and that are used only after the cut: they are held from the task's start until then.
[[nodiscard]] std::int64_t brings(Problem const& problem, TaskId task, std::vector<Side> const& side);

}  // namespace weft
