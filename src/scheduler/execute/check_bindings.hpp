#pragma once

#include <span>

#include "weft/communicator.hpp"
#include "weft/plan_executor.hpp"

namespace weft {

/// Local. @throws what PlanExecutor's constructor says of graph, groups and bindings.
void check_bindings(OpGraph const& graph, std::span<OpBinding const> bindings, std::span<Communicator* const> groups);

}  // namespace weft
