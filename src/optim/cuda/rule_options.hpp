#pragma once

#include "kernels/cuda/optim/step.hpp"
#include "weft/optimizer_options.hpp"

namespace weft::cuda {

[[nodiscard]] kernels::cuda::RuleOptions rule_options(OptimizerOptions const& options);

}  // namespace weft::cuda
