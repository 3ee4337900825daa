#include "runtime/cuda/cuda_stream.hpp"

#include <utility>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_mark.hpp"
#include "weft/error.hpp"

namespace weft::cuda {

struct CudaStream::Task {
  std::function<void()> body;
  std::shared_ptr<Runner> runner;
};

CudaStream::CudaStream(StreamOptions const& options) : device_(options.device), owned_(true) {
  DeviceGuard const guard(device_);
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, options.high_priority ? greatest : least),
        "cudaStreamCreateWithPriority");
}

// Does not wait: CUDA runs what is queued and then frees the stream. It fails only where the context is gone, and the
// stream with it.
CudaStream::~CudaStream() {
  if (owned_) static_cast<void>(cudaStreamDestroy(handle_));
}

void CudaStream::run(void* task) {
  std::unique_ptr<Task> const owner(static_cast<Task*>(task));
  *owner->runner = std::this_thread::get_id();
  owner->body();
  *owner->runner = std::thread::id();
}

void CudaStream::enqueue(std::function<void()> task) {
  DeviceGuard const guard(device_);
  auto owner = std::make_unique<Task>(Task{std::move(task), runner_});
  check(cudaLaunchHostFunc(handle_, run, owner.get()), "cudaLaunchHostFunc");
  static_cast<void>(owner.release());  // run() owns it now
}

void CudaStream::synchronize() {
  DeviceGuard const guard(device_);
  check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
}

std::shared_ptr<EventMark> CudaStream::mark() {
  return std::make_shared<CudaMark>(*this);
}

CudaStream* as_cuda(Stream const& stream) noexcept {
  return dynamic_cast<CudaStream*>(&stream.impl());
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
