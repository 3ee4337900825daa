#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/transformer_graph.hpp"

namespace weft {

/// A parameter tensor, or the part of it that one tensor-parallel rank has.
struct Weight {
  std::string name;
  std::vector<std::string> used_by{};  ///< operators that compute with it
  std::int64_t elements = 0;
  bool at_both_ends = false;  ///< the first and the last stage both have the same part of it
};

/// Parameters that are gathered together, and whose gradients are reduced together: a layer, the embedding or the head.
struct Unit {
  std::string name;
  int layer = kNone;
  std::vector<Weight> weights{};
};

[[nodiscard]] Unit embedding_unit(TransformerShape const& shape, TransformerPlan const& plan);
[[nodiscard]] Unit layer_unit(TransformerShape const& shape, TransformerPlan const& plan, int layer);
/// The last norm, and the head's matrix unless the embedding's is on the same rank.
[[nodiscard]] Unit head_unit(TransformerShape const& shape, TransformerPlan const& plan);

}  // namespace weft
