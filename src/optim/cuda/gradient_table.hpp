#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/optim/step.hpp"
#include "optim/cuda/gpu.hpp"

namespace weft::cuda {

/// A table, in a machine's memory, of where tensors are that may move from call to call, such as gradients from step to
/// step. While they stay where they are, nothing is launched.
template <typename Machine>
class GradientTable {
 public:
  GradientTable(Machine machine, std::size_t count)
      : machine_(machine), memory_(machine.allocate(count * sizeof(Pointer))), known_(count) {}
  /// Begins with these tensors. Blocks.
  GradientTable(Machine machine, std::span<BufferView const> tensors) : machine_(machine) {
    for (auto const& view : tensors) known_.push_back({view.data, view.dtype});
    memory_ = upload(machine, known_);
  }

  [[nodiscard]] kernels::cuda::TensorPointer const* data() const { return static_cast<Pointer const*>(memory_.data()); }

  void set(std::size_t index, BufferView const& gradient, Stream const* stream) {
    set_from(index, {&gradient, 1}, stream);
  }
  /// For neighbours in the table.
  void set(std::size_t first, std::span<BufferView const> gradients, Stream const* stream) {
    constexpr std::size_t kMost = kernels::cuda::SetGradientsBody::kMost;
    for (std::size_t i = 0; i < gradients.size(); i += kMost) {
      set_from(first + i, gradients.subspan(i, std::min(kMost, gradients.size() - i)), stream);
    }
  }

 private:
  using Pointer = kernels::cuda::TensorPointer;

  /// For as many as fit one launch.
  void set_from(std::size_t first, std::span<BufferView const> gradients, Stream const* stream) {
    if (machine_.is_capturing(stream)) {
      // From now on the table may hold what a graph has written, whenever it ran: known_ cannot be trusted.
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
  std::vector<Pointer> known_;  // what the table was last told
  bool captured_ = false;
};

}  // namespace weft::cuda
