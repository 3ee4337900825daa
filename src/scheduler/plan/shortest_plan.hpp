#pragma once

#include "scheduler/plan/plan_maker.hpp"

namespace weft {

/// Makes `plan`, which keeps within the planner's capacity, the shortest of all: tries every way to merge collectives
/// that could gain anything, and for each every order of starts. Returns whether it is certain that no plan is shorter.
/// It is not with contention, with more than kMostExhaustiveTasks operators, and where there is too much to try; `plan`
/// is then still no longer than it was. What is tried depends on the arguments alone.
[[nodiscard]] bool make_shortest(PlanMaker const& planner, Plan& plan);

}  // namespace weft
