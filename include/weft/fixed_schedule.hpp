#pragma once

#include <cstdint>

#include "weft/cost_model.hpp"
#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// Schedules that nothing is searched for: what a trainer without a planner does, to compare plans with. Operators run
/// in the order in which the graph has them, as far as what they wait for allows. Memory is not looked at: the capacity
/// of the result is what it takes. Pure.

/// One launch after another, each collective by itself where the graph has it.
/// @throws Error{invalid_argument} as check_graph().
[[nodiscard]] Schedule program_schedule(OpGraph const& graph, CostModel const& model);

/// As data-parallel trainers do it: collectives of one kind and group are collected, in the order in which what they
/// send is ready, into buckets that are sent as soon as they have `bytes` or more, or hold the last ones. A bucket
/// whose members are separated by somebody who needs one of them ends there.
/// @throws Error{invalid_argument} as check_graph(), and for bytes below 1.
[[nodiscard]] Schedule bucket_schedule(OpGraph const& graph, CostModel const& model, std::int64_t bytes);

}  // namespace weft
