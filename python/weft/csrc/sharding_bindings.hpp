#pragma once

#include <memory>
#include <string>
#include <utility>

#include <torch/csrc/utils/pybind.h>

#include "sharded_model.hpp"
#include "weft/optimizer_options.hpp"

namespace weft::torch_backend {

/// What Python holds: its end may wait for the GPU and for other ranks, while other threads have the interpreter.
template <typename Held, typename... Arguments>
std::shared_ptr<Held> made(Arguments&&... arguments) {
  return {new Held(std::forward<Arguments>(arguments)...), [](Held* held) {
            auto* const state = Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
            delete held;
            if (state != nullptr) PyEval_RestoreThread(state);
          }};
}

/// A param group of torch's, by torch's names.
[[nodiscard]] OptimizerOptions options_of(std::string const& kind, pybind11::dict const& from);

/// Adds what weft's wrappers, memory reports and checkpoints call to the extension.
void bind_sharding(pybind11::module_& module);

}  // namespace weft::torch_backend
