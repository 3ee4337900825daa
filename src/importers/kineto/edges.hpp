#pragma once

#include <string>
#include <vector>

#include "importers/kineto/operators.hpp"
#include "weft/op_graph.hpp"

namespace weft::kineto {

/// Adds control edges between operators (ids are their places in the list) where an event of the trace says that one
/// waits for another. An edge that would lead back in time is counted and left out, so there is no cycle.
void add_edges(Events const& all, Forest const& forest, Operators const& operators, OpGraph& graph,
               ImportReport& report);

}  // namespace weft::kineto
