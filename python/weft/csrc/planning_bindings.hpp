#pragma once

#include <torch/csrc/utils/pybind.h>

namespace weft::torch_backend {

/// Adds to the extension what weft.graph and weft.checkpointing call: the planners, on graphs in the JSON form of
/// docs/op-graph.md.
void bind_planning(pybind11::module_& module);

}  // namespace weft::torch_backend
