#include "runtime/cuda/cuda_stream.hpp"

#include <memory>
#include <thread>
#include <typeinfo>
#include <utility>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_mark.hpp"
#include "runtime/cuda/memory_pool.hpp"
#include "weft/cuda_graph.hpp"
#include "weft/error.hpp"

namespace weft::cuda {

struct CudaStream::Task {
  std::function<void()> body;
  std::shared_ptr<Runner> runner;
};

CudaStream::CudaStream(cudaStream_t handle, int device, CudaFunctions const& cuda)
    : cuda_(cuda), device_(device), events_(device, cudaEventBlockingSync, cuda), handle_(handle) {}

CudaStream::CudaStream(StreamOptions const& options, CudaFunctions const& cuda)
    : CudaStream(nullptr, options.device, cuda) {
  DeviceGuard const guard(device_, cuda_);
  int least = 0;
  int greatest = 0;
  check(cuda_, cuda_.device_get_stream_priority_range(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check(cuda_,
        cuda_.stream_create_with_priority(&handle_, cudaStreamNonBlocking, options.high_priority ? greatest : least),
        "cudaStreamCreateWithPriority");
  owned_ = true;
}

// Does not wait: CUDA runs what is queued and then frees the stream. Destroying fails only where the context is gone,
// and the stream with it.
CudaStream::~CudaStream() {
  if (owned_) static_cast<void>(cuda_.stream_destroy(handle_));
}

void CudaStream::run(void* task) {
  std::unique_ptr<Task> const owner(static_cast<Task*>(task));
  *owner->runner = std::this_thread::get_id();
  owner->body();
  *owner->runner = std::thread::id();
}

void CudaStream::enqueue(std::function<void()> task) {
  DeviceGuard const guard(device_, cuda_);
  if (is_capturing(Stream(shared_from_this()))) {
    throw Error(ErrorCode::unsupported,
                "Stream::enqueue: a host task cannot be part of a CUDA graph, which would run it when it is gone, or "
                "never; enqueue it before or behind the launches");
  }
  auto owner = std::make_unique<Task>(Task{std::move(task), runner_});
  check(cuda_, cuda_.launch_host_func(handle_, run, owner.get()), "cudaLaunchHostFunc");
  static_cast<void>(owner.release());  // run() owns it now
}

void CudaStream::synchronize() {
  DeviceGuard const guard(device_, cuda_);
  check(cuda_, cuda_.stream_synchronize(handle_), "cudaStreamSynchronize");
}

std::shared_ptr<EventMark> CudaStream::mark() {
  return std::make_shared<CudaMark>(*this, events_.take());
}

void CudaStream::copy(void* to, void const* from, std::size_t bytes) {
  if (bytes == 0) return;
  DeviceGuard const guard(device_, cuda_);
  check(cuda_, cuda_.memcpy_async(to, from, bytes, cudaMemcpyDefault, handle_), "cudaMemcpyAsync");
}

void CudaStream::fill(void* at, std::uint8_t byte, std::size_t bytes) {
  if (bytes == 0) return;
  DeviceGuard const guard(device_, cuda_);
  check(cuda_, cuda_.memset_async(at, byte, bytes, handle_), "cudaMemsetAsync");
}

Buffer CudaStream::allocate(std::size_t count, DataType dtype) {
  return cuda::allocate(count, dtype, Stream(shared_from_this()));
}

void CudaStream::release(Buffer memory) {
  free_on(memory, Stream(shared_from_this()));
}

CudaStream* as_cuda(Stream const& stream) noexcept {
  auto& impl = stream.impl();
  return typeid(impl) == typeid(CudaStream) ? static_cast<CudaStream*>(&impl) : nullptr;  // cheaper than dynamic_cast
}

Stream make_stream(StreamOptions const& options) {
  return Stream(std::make_shared<CudaStream>(options));
}

Stream wrap_stream(StreamHandle handle, int device) {
  DeviceGuard const guard(device);  // refuses a device that is not there
  return Stream(std::make_shared<CudaStream>(handle, device));
}

StreamHandle handle_of(Stream const& stream) {
  CudaStream const* const cuda = as_cuda(stream);
  if (cuda == nullptr) {
    throw Error(ErrorCode::invalid_argument, "cuda::handle_of: the stream is on " + to_string(stream.device()));
  }
  return cuda->handle();
}

}  // namespace weft::cuda
