#pragma once

#include <string>
#include <vector>

#include "importers/kineto/operators.hpp"
#include "weft/op_graph.hpp"

namespace weft::kineto {

/// Adds what an event of a trace says about others as control edges between operators, whose ids are their places in
/// the list. An edge that would lead back in time is counted and left out: so there is no cycle.
void add_edges(Events const& all, Forest const& forest, Operators const& operators, OpGraph& graph,
               ImportReport& report);

}  // namespace weft::kineto
