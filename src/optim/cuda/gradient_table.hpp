#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/optim/step.hpp"
#include "optim/cuda/gpu.hpp"

namespace weft::cuda {

/// Where tensors are that may move from call to call, such as gradients from step to step, in a machine's memory. While
/// they stay where they were, nothing is launched.
template <typename Machine>
class GradientTable {
 public:
  GradientTable(Machine machine, std::size_t count)
      : machine_(machine), memory_(machine.allocate(count * sizeof(Pointer))), known_(count) {}
  /// These, at first. Blocks.
  GradientTable(Machine machine, std::span<BufferView const> tensors) : machine_(machine) {
    for (auto const& view : tensors) known_.push_back({view.data, view.dtype});
    memory_ = upload(machine, known_);
  }

  [[nodiscard]] kernels::cuda::TensorPointer const* data() const { return static_cast<Pointer const*>(memory_.data()); }

  void set(std::size_t index, BufferView const& gradient, Stream const* stream) {
    set_from(index, {&gradient, 1}, stream);
  }
  /// Of neighbours.
  void set(std::size_t first, std::span<BufferView const> gradients, Stream const* stream) {
    constexpr std::size_t kMost = kernels::cuda::SetGradientsBody::kMost;
    for (std::size_t i = 0; i < gradients.size(); i += kMost) {
      set_from(first + i, gradients.subspan(i, std::min(kMost, gradients.size() - i)), stream);
    }
  }

 private:
  using Pointer = kernels::cuda::TensorPointer;

  /// As many as fit a launch.
  void set_from(std::size_t first, std::span<BufferView const> gradients, Stream const* stream) {
    if (machine_.is_capturing(stream)) {
      // From now on the table may be what a graph has written whenever it ran.
      captured_ = true;
    }
    bool changed = captured_;
    kernels::cuda::SetGradientsBody body;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Pointer const now{gradients[i].data, gradients[i].dtype};
      Pointer& known = known_[first + i];
      changed = changed || known.data != now.data || known.type != now.type;
      body.gradients[i] = known = now;
    }
    if (!changed) return;
    body.count = static_cast<unsigned>(gradients.size());
    body.to = static_cast<Pointer*>(memory_.data()) + first;
    machine_.launch(body, 1, stream);
  }

  Machine machine_;
  Buffer memory_;
  std::vector<Pointer> known_;  // what has been sent
  bool captured_ = false;
};

}  // namespace weft::cuda
