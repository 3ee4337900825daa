#include "runtime/cuda/cuda_mark.hpp"

#include "runtime/cuda/check.hpp"
#include "weft/error.hpp"

namespace weft::cuda {

CudaMark::CudaMark(CudaStream const& stream) : device_(stream.device().index) {
  DeviceGuard const guard(device_);
  check(cudaEventCreateWithFlags(&event_, cudaEventBlockingSync), "cudaEventCreateWithFlags");
  cudaError_t const status = cudaEventRecord(event_, stream.handle());
  if (status != cudaSuccess) static_cast<void>(cudaEventDestroy(event_));
  check(status, "cudaEventRecord");
}

CudaMark::~CudaMark() {
  static_cast<void>(cudaEventDestroy(event_));
}

bool CudaMark::reached() const noexcept {
  return cudaEventQuery(event_) != cudaErrorNotReady;
}

void CudaMark::synchronize() const {
  check(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

void CudaMark::wait_on(Stream const& stream, std::shared_ptr<EventMark const> const& self) const {
  if (CudaStream const* const cuda = as_cuda(stream)) {
    DeviceGuard const guard(cuda->device().index);
    check(cudaStreamWaitEvent(cuda->handle(), event_, 0), "cudaStreamWaitEvent");
    return;
  }
  // A failed GPU stream has reached every mark; whoever uses its results meets the error there.
  Stream queue = stream;
  queue.enqueue([self] { static_cast<void>(cudaEventSynchronize(static_cast<CudaMark const&>(*self).event_)); });
}

std::chrono::nanoseconds CudaMark::elapsed_until(EventMark const& later) const {
  auto const* const other = dynamic_cast<CudaMark const*>(&later);
  if (other == nullptr || other->device_ != device_) {
    throw Error(ErrorCode::invalid_argument, "Event::elapsed_until: the events were recorded on different devices");
  }
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, event_, other->event_), "cudaEventElapsedTime");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<float, std::milli>(milliseconds));
}

}  // namespace weft::cuda
