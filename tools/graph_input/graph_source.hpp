#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/op_graph.hpp"
#include "weft/transformer_graph.hpp"

namespace weft::graph_tool {

/// Where a tool's graph comes from.
struct GraphSource {
  std::string graph{};  ///< a file; empty if there is a model
  std::string model{};  ///< a preset, to which `shape_changes` and `plan` belong
  std::vector<std::function<void(TransformerShape&)>> shape_changes{};
  TransformerPlan plan{};
};

/// The graph of the file, in any supported form (an importer's remarks go to standard error), or of the model, spread
/// as in `plan`. All names of operators and of tensors are different.
/// @throws Error{invalid_argument} naming the file, as the importers and transformer_graph() do.
[[nodiscard]] OpGraph read(GraphSource const& source, TransformerPlan const& plan);

}  // namespace weft::graph_tool
