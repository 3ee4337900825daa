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

/// Weft's name for a tensor's device.
[[nodiscard]] Device weft_device(c10::Device device) noexcept;

/// A GPU's streams, both as torch's and as Weft's objects. For torch's side it uses c10's device interface, whose
/// implementation comes with the torch that made the tensors, so nothing of torch's CUDA is linked. Any thread.
class GpuStreams {
 public:
  /// Takes a stream of high priority from torch's pool, for communication.
  /// @throws c10::NotImplementedError if Weft was built without CUDA.
  GpuStreams(c10::Device device, Place const& place);

  [[nodiscard]] c10::Device device() const noexcept { return communication_.device(); }
  [[nodiscard]] c10::Stream communication() const noexcept { return communication_; }
  /// The calling thread's current stream.
  [[nodiscard]] c10::Stream current() const { return torch_.getStream(device()); }
  /// The same stream for Weft's calls.
  [[nodiscard]] Stream weft(c10::Stream stream);

  /// Whether a CUDA graph is being recorded on it.
  [[nodiscard]] bool is_capturing(c10::Stream stream);

  /// Makes what is enqueued on communication() from now on follow everything on current() so far.
  void follow_current();
  /// Keeps the tensor's memory until everything on `stream` so far has run, even if the tensor is freed earlier.
  void record_use(at::Tensor const& tensor, c10::Stream stream) const;

 private:
  c10::impl::VirtualGuardImpl const torch_;
  c10::Stream const communication_;
  std::mutex mutex_;
  c10::Event reached_;                               ///< recorded by follow_current()
  std::vector<std::pair<void*, Stream>> wrapped_{};  ///< by torch's native handle
};

/// While it lives, torch's current stream on the stream's device is `stream`.
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

/// Keeps the tensor's memory until everything on its device's current stream so far has run. Does nothing on the CPU.
void record_use_here(at::Tensor const& tensor);

}  // namespace weft::torch_backend
