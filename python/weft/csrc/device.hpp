#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tensors.hpp"
#include "weft/device.hpp"
#include "weft/stream.hpp"

namespace weft::torch_backend {

/// Whether Weft was built for tensors on GPUs, i.e. with CUDA and NCCL.
[[nodiscard]] bool moves_gpu_tensors() noexcept;

/// Where a tensor lies, as Weft says it.
[[nodiscard]] Device weft_device(c10::Device device) noexcept;

/// A GPU's streams, as torch has them and as Weft has them. Torch's side goes through c10's interface of devices, whose
/// implementation comes with the torch that made the tensors: nothing of torch's CUDA is linked. Any thread.
class GpuStreams {
 public:
  /// Takes a stream of high priority from torch's pool, for communication.
  /// @throws c10::NotImplementedError where Weft was built without CUDA.
  GpuStreams(c10::Device device, Place const& place);

  [[nodiscard]] c10::Device device() const noexcept { return communication_.device(); }
  [[nodiscard]] c10::Stream communication() const noexcept { return communication_; }
  /// The calling thread's current one.
  [[nodiscard]] c10::Stream current() const { return torch_.getStream(device()); }
  /// The same stream for Weft's calls.
  [[nodiscard]] Stream weft(c10::Stream stream);

  /// Whether a CUDA graph is being recorded on it.
  [[nodiscard]] bool is_capturing(c10::Stream stream);

  /// What comes on communication() follows all that is on current() so far.
  void follow_current();
  /// The tensor's memory is kept until what is on `stream` so far has run, even if the tensor goes earlier.
  void record_use(at::Tensor const& tensor, c10::Stream stream) const;

 private:
  c10::impl::VirtualGuardImpl const torch_;
  c10::Stream const communication_;
  std::mutex mutex_;
  c10::Event reached_;                               ///< what follow_current() marks
  std::vector<std::pair<void*, Stream>> wrapped_{};  ///< by torch's native handle
};

/// Within its life torch's current stream is another, on its device.
class OnStream {
 public:
  explicit OnStream(c10::Stream stream);
  ~OnStream();
  OnStream(OnStream const&) = delete;
  OnStream& operator=(OnStream const&) = delete;

 private:
  c10::impl::VirtualGuardImpl const torch_;
  c10::Device const device_before_;
  c10::Stream const stream_before_;
};

/// The calling thread's current stream on a GPU, for Weft's calls. @throws c10::Error where Weft was built without
/// CUDA.
[[nodiscard]] Stream current_stream(c10::Device device);

/// The tensor's memory is kept until what is on its device's current stream so far has run. Nothing for the CPU's.
void record_use_here(at::Tensor const& tensor);

}  // namespace weft::torch_backend
