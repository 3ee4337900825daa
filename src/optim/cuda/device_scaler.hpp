#pragma once

#include "kernels/cuda/gradients/loss_scale.hpp"
#include "optim/cuda/gpu.hpp"
#include "optim/grad_scaler_impl.hpp"

namespace weft::cuda {

/// A loss scale in a machine's memory.
template <typename Machine>
class DeviceScaler final : public GradScaler::Impl {
 public:
  explicit DeviceScaler(Machine machine) : machine_(machine), memory_(machine.allocate(sizeof(kernels::LossScale))) {}

  [[nodiscard]] kernels::LossScale read() const override {
    return download<kernels::LossScale>(machine_, memory_.data());
  }
  void write(kernels::LossScale const& state) override { machine_.write(memory_.data(), &state, sizeof state); }
  [[nodiscard]] kernels::LossScale* memory() noexcept override {
    return static_cast<kernels::LossScale*>(memory_.data());
  }
  [[nodiscard]] Device device() const noexcept override { return machine_.device(); }
  void update(kernels::LossScaleRule const& rule, Stream const* stream) override {
    machine_.launch(kernels::cuda::UpdateLossScaleBody{memory(), rule}, 1, stream);
  }

 private:
  Machine machine_;
  Buffer memory_;
};

}  // namespace weft::cuda
