#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/op_graph.hpp"
#include "weft/transformer_graph.hpp"

namespace weft::graph_tool {

/// Where a tool's graph comes from.
struct GraphSource {
  std::string graph{};  ///< a file; or
  std::string model{};  ///< a preset, with `shape_changes` and `plan`
  std::vector<std::function<void(TransformerShape&)>> shape_changes{};
  TransformerPlan plan{};
};

/// Of a file, whatever form it has (what an importer has to say goes to standard error), or of the model spread as in
/// `plan`. Operators and tensors have names of their own.
/// @throws Error{invalid_argument} naming the file, as the importers and transformer_graph() do.
[[nodiscard]] OpGraph read(GraphSource const& source, TransformerPlan const& plan);

}  // namespace weft::graph_tool
