#pragma once

#include <memory>
#include <string>
#include <utility>

#include <torch/csrc/utils/pybind.h>

#include "sharded_model.hpp"
#include "weft/optimizer_options.hpp"

namespace weft::torch_backend {

/// Makes an object for Python to hold. Its destruction may wait for the GPU and for other ranks, so it releases
/// Python's lock for other threads meanwhile.
template <typename Held, typename... Arguments>
std::shared_ptr<Held> made(Arguments&&... arguments) {
  return {new Held(std::forward<Arguments>(arguments)...), [](Held* held) {
            auto* const state = Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
            delete held;
            if (state != nullptr) PyEval_RestoreThread(state);
          }};
}

/// The options in one of torch's param groups, by torch's names.
[[nodiscard]] OptimizerOptions options_of(std::string const& kind, pybind11::dict const& from);

/// Adds to the extension what weft's wrappers, memory reports and checkpoints call.
void bind_sharding(pybind11::module_& module);

}  // namespace weft::torch_backend
