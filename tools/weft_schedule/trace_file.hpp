#pragma once

#include <iosfwd>

#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft::schedule_tool {

/// A schedule's timeline for Perfetto and chrome://tracing: a track for each resource, a counter of live bytes as they
/// are when something starts.
void write_timeline(OpGraph const& graph, Schedule const& schedule, std::ostream& out);

}  // namespace weft::schedule_tool
