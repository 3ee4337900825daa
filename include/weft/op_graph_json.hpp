#pragma once

#include <iosfwd>
#include <string>

#include "weft/op_graph.hpp"

namespace weft {

/// Reads a graph from its JSON form (docs/op-graph.md). Names stand for ids: operators, tensors and groups each have
/// names of their own that are unique.
/// @throws Error{invalid_argument} naming `source` and the line (of what is not JSON) or the operator, tensor or group:
/// unknown keys and kinds, names that stand for nothing or for two, numbers that are none, and all that check_graph()
/// refuses.
[[nodiscard]] OpGraph read_graph(std::istream& in, std::string const& source);

/// Writes what read_graph() reads back as an equal graph. Operators or tensors without a name, or with one that another
/// has, are written as "op<ID>", "tensor<ID>", made unique.
void write_graph(OpGraph const& graph, std::ostream& out);

/// Gives operators, tensors and groups the names that write_graph() writes.
void name_uniquely(OpGraph& graph);

}  // namespace weft
