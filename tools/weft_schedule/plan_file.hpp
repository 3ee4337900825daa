#pragma once

#include <nlohmann/json.hpp>

#include "weft/cluster.hpp"
#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft::schedule_tool {

/// The plan in the form that docs/plan-file.md describes. All operators of the graph must have different names.
[[nodiscard]] nlohmann::ordered_json plan_json(OpGraph const& graph, Cluster const& cluster, Schedule const& schedule);

}  // namespace weft::schedule_tool
