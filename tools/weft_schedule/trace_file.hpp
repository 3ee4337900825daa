#pragma once

#include <iosfwd>

#include "weft/op_graph.hpp"
#include "weft/schedule.hpp"

namespace weft::schedule_tool {

/// Writes a schedule's timeline for Perfetto and chrome://tracing: a track for each resource, and a counter of the
/// bytes that are live whenever something starts.
void write_timeline(OpGraph const& graph, Schedule const& schedule, std::ostream& out);

}  // namespace weft::schedule_tool
