#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "weft/buffer.hpp"
#include "weft/gradients.hpp"
#include "weft/stream.hpp"

namespace weft {

/// The norm of gradients on a GPU, as this rank's part of a norm over several GPUs, while gradients become ready:
/// look_at() each, combine(), let the GPUs add up numbers(), judge(). Everything but construction and read() only
/// enqueues, allocates nothing and can be captured. Each call must be ordered behind the one before, by the same stream
/// or by an event. Not thread-safe.
class DeviceNorm {
 public:
  DeviceNorm() = default;
  virtual ~DeviceNorm() = default;
  DeviceNorm(DeviceNorm const&) = delete;
  DeviceNorm& operator=(DeviceNorm const&) = delete;

  /// One pass over tensors [first, first + count); its result replaces that of the last pass over them. `factor`, in
  /// device memory or null, multiplies each element.
  virtual void look_at(std::size_t first, std::size_t count, float const* factor, Stream const& stream) = 0;
  /// Makes numbers() from what was seen of all tensors and from `found_inf` (in device memory or null; where it is not
  /// 0, gradients count as not finite).
  virtual void combine(NormType type, float const* found_inf, Stream const& stream) = 0;
  /// Two f64 in device memory: over GPUs they are summed for NormType::l2, otherwise their largest is taken.
  [[nodiscard]] virtual BufferView numbers() const noexcept = 0;

  struct Judgement {
    NormType type = NormType::l2;
    double max_norm = 0;               ///< 0: no clipping
    float const* factor = nullptr;     ///< in device memory or null, like found_inf: multiplies the norm
    float const* found_inf = nullptr;  ///< not 0: skip the step, even where all is finite
    float* also_found_inf = nullptr;   ///< gets found_inf() too; may be null
  };
  /// Judges by numbers(), which by now are of all GPUs.
  virtual void judge(Judgement const& how, Stream const& stream) = 0;
  // What judge() found, in device memory, for StepInputs.
  [[nodiscard]] virtual float const* clip() const noexcept = 0;
  [[nodiscard]] virtual float const* found_inf() const noexcept = 0;
  /// The norm of the last judge(). Waits for the GPU.
  [[nodiscard]] virtual GradientNorm read() const = 0;
};

#ifdef WEFT_CUDA_TRAINING
/// For tensors of f32, bf16 or f16 on `device`; their memory must outlive it. Blocks.
[[nodiscard]] std::unique_ptr<DeviceNorm> make_cuda_norm(std::span<BufferView const> tensors, Device device);
#endif

}  // namespace weft
