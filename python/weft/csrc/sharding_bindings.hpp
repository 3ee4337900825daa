#pragma once

#include <string>

#include <torch/csrc/utils/pybind.h>

#include "sharded_model.hpp"
#include "weft/optimizer_options.hpp"

namespace weft::torch_backend {

/// A param group of torch's, by torch's names.
[[nodiscard]] OptimizerOptions options_of(std::string const& kind, pybind11::dict const& from);

/// Adds what weft's wrappers, memory reports and checkpoints call to the extension.
void bind_sharding(pybind11::module_& module);

}  // namespace weft::torch_backend
