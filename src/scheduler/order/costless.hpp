#pragma once

#include "weft/cost_model.hpp"

namespace weft {

/// A cost model whose figures mean nothing. Planning memory alone asks for no costs, but a Problem has to have a cost
/// model.
class Costless {
 public:
  [[nodiscard]] CostModel const& model() const { return model_; }

 private:
  CostModel model_{Cluster{.name = "any",
                           .ranks_per_host = 1,
                           .flops_per_s = 1,
                           .memory_bytes_per_s = 1,
                           .within = {1, 0},
                           .between = {1, 0}}};
};

}  // namespace weft
