#pragma once

#include <torch/csrc/utils/pybind.h>

namespace weft::torch_backend {

/// Adds what weft.optim and weft.amp call to the extension.
void bind_training(pybind11::module_& module);

}  // namespace weft::torch_backend
