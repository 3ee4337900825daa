#pragma once

#include <torch/csrc/utils/pybind.h>

namespace weft::torch_backend {

/// Adds layer_calls.hpp's functions for tensors on a GPU to the extension, named device_layer_norm and so on; none
/// where it was built without Weft's kernels. The same arguments and results, all on one GPU, the seed too; a gradient
/// may be of another of the types than its matrix. They only enqueue on the device's current stream, and take memory
/// from torch alone: a CUDA graph can record them.
void bind_device_layers(pybind11::module_& module);

}  // namespace weft::torch_backend
