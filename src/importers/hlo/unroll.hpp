#pragma once

#include <cstdint>
#include <vector>

#include "importers/hlo/module.hpp"
#include "importers/hlo/recipe.hpp"
#include "weft/import_hlo.hpp"
#include "weft/op_graph.hpp"

namespace weft::hlo {

/// The tensors of the entry's parameters and results, by leaf; kNone: a constant, which no tensor holds.
struct Ends {
  std::vector<TensorId> parameters{};
  std::vector<TensorId> results{};
};

/// Puts the entry's operators into `graph`, callees in the place of their calls, the iterations of loops one after the
/// other; each operator after those that it needs. Adds to the report what was rewritten.
/// @throws Error{invalid_argument}: more operators than options.max_ops.
[[nodiscard]] Ends unroll(Module const& module, std::vector<Recipe> const& recipes, ImportHloOptions const& options,
                          OpGraph& graph, HloReport& report);

}  // namespace weft::hlo
