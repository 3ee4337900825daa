#pragma once

#include "weft/transformer_graph.hpp"

namespace weft {

/// @throws Error{invalid_argument} as transformer_graph() does.
void check_transformer(TransformerShape const& shape, TransformerPlan const& plan);

}  // namespace weft
