#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_functions.hpp"
#include "runtime/cuda/event_pool.hpp"
#include "runtime/stream_impl.hpp"
#include "weft/cuda.hpp"

namespace weft::cuda {

/// A Stream that is a cudaStream_t. Host tasks run on a thread of CUDA's, in stream order, and must not call CUDA.
class CudaStream final : public Stream::Impl {
 public:
  explicit CudaStream(StreamOptions const& options, CudaFunctions const& cuda = cuda_runtime());
  CudaStream(cudaStream_t handle, int device, CudaFunctions const& cuda = cuda_runtime());
  ~CudaStream() override;
  CudaStream(CudaStream const&) = delete;
  CudaStream& operator=(CudaStream const&) = delete;

  void enqueue(std::function<void()> task) override;
  void synchronize() override;
  [[nodiscard]] Device device() const noexcept override { return {DeviceType::cuda, device_}; }
  [[nodiscard]] bool on_worker() const noexcept override { return *runner_ == std::this_thread::get_id(); }
  [[nodiscard]] std::shared_ptr<EventMark> mark() override;

  void copy(void* to, void const* from, std::size_t bytes) override;
  void fill(void* at, std::uint8_t byte, std::size_t bytes) override;
  [[nodiscard]] Buffer allocate(std::size_t count, DataType dtype) override;
  void release(Buffer memory) override;

  [[nodiscard]] CudaFunctions const& cuda() const noexcept { return cuda_; }
  [[nodiscard]] cudaStream_t handle() const noexcept { return handle_; }

 private:
  using Runner = std::atomic<std::thread::id>;
  struct Task;
  static void run(void* task);

  CudaFunctions const& cuda_;
  int device_;
  EventPool events_;  ///< for marks
  bool owned_ = false;
  cudaStream_t handle_ = nullptr;
  /// The thread that is inside a task now; shared with tasks, which may outlive this.
  std::shared_ptr<Runner> runner_ = std::make_shared<Runner>();
};

/// Makes a stream's device current where the handle does not say which one that is: CUDA has default streams on each
/// device.
class DefaultStreamGuard {
 public:
  explicit DefaultStreamGuard(CudaStream const& stream) {
    auto* const handle = stream.handle();
    if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) [[unlikely]]
      guard_.emplace(stream.device().index, stream.cuda());
  }
  DefaultStreamGuard(DefaultStreamGuard const&) = delete;
  DefaultStreamGuard& operator=(DefaultStreamGuard const&) = delete;

 private:
  std::optional<DeviceGuard> guard_;
};

/// `stream`'s implementation, or null when it is not a CUDA stream.
[[nodiscard]] CudaStream* as_cuda(Stream const& stream) noexcept;

}  // namespace weft::cuda
