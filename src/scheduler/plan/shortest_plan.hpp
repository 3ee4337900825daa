#pragma once

#include "scheduler/plan/plan_maker.hpp"

namespace weft {

/// Makes `plan`, which keeps within the planner's capacity, the shortest of all, where it is not: tries every way to
/// merge collectives that could gain anything, and of each every order of starts. Returns whether none is shorter for
/// certain. Not so with contention, with more than kMostExhaustiveTasks operators, and where there is too much to try:
/// then `plan` is still no longer than it was. What is tried depends on the arguments alone.
[[nodiscard]] bool make_shortest(PlanMaker const& planner, Plan& plan);

}  // namespace weft
