#pragma once

#include <memory>

#include "kernels/math/loss_scale.hpp"
#include "weft/device.hpp"
#include "weft/grad_scaler.hpp"

namespace weft {

/// Keeps a loss scale, in the memory of device().
class GradScaler::Impl {
 public:
  Impl() = default;
  virtual ~Impl() = default;
  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  [[nodiscard]] virtual kernels::LossScale read() const = 0;
  virtual void write(kernels::LossScale const& state) = 0;
  /// The scale, in device()'s memory.
  [[nodiscard]] virtual kernels::LossScale* memory() noexcept = 0;
  [[nodiscard]] virtual Device device() const noexcept = 0;
  virtual void update(kernels::LossScaleRule const& rule, Stream const* stream) = 0;
};

#ifdef WEFT_CUDA_TRAINING
[[nodiscard]] std::unique_ptr<GradScaler::Impl> make_cuda_scaler(int device);
#endif

}  // namespace weft
