#pragma once

#include <span>

#include "weft/memory_plan.hpp"

namespace weft {

/// @throws what plan_memory() says about its arguments.
void check_buffers(std::span<PlannedBuffer const> buffers, MemoryPlanOptions const& options);

}  // namespace weft
