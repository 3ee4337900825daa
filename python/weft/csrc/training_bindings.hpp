#pragma once

#include <torch/csrc/utils/pybind.h>

namespace weft::torch_backend {

/// Adds to the extension what weft.optim and weft.amp call.
void bind_training(pybind11::module_& module);

}  // namespace weft::torch_backend
