#include "runtime/cuda/cuda_mark.hpp"

#include <utility>

#include "runtime/cuda/check.hpp"
#include "weft/error.hpp"

namespace weft::cuda {

CudaMark::CudaMark(CudaStream const& stream, EventPool::Lease event)
    : device_(stream.device().index), cuda_(stream.cuda()), event_(std::move(event)) {
  DefaultStreamGuard const guard(stream);
  check(cuda_, cuda_.event_record(event_.event(), stream.handle()), "cudaEventRecord");
}

bool CudaMark::reached() const noexcept {
  return is_reached(cuda_, event_.event());
}

void CudaMark::synchronize() const {
  check(cuda_, cuda_.event_synchronize(event_.event()), "cudaEventSynchronize");
}

void CudaMark::wait_on(Stream const& stream, std::shared_ptr<EventMark const> const& self) const {
  if (CudaStream const* const cuda = as_cuda(stream)) {
    DefaultStreamGuard const guard(*cuda);
    check(cuda_, cuda_.stream_wait_event(cuda->handle(), event_.event(), 0), "cudaStreamWaitEvent");
    return;
  }
  if (reached()) return;
  // On a failed GPU stream every mark counts as reached; whoever uses its results meets the error there.
  Stream queue = stream;
  queue.enqueue([self] {
    auto const& mark = static_cast<CudaMark const&>(*self);
    static_cast<void>(mark.cuda_.event_synchronize(mark.event_.event()));
  });
}

std::chrono::nanoseconds CudaMark::elapsed_until(EventMark const& later) const {
  auto const* const other = dynamic_cast<CudaMark const*>(&later);
  if (other == nullptr || other->device_ != device_) {
    throw Error(ErrorCode::invalid_argument, "Event::elapsed_until: the events were recorded on different devices");
  }
  float milliseconds = 0;
  check(cuda_, cuda_.event_elapsed_time(&milliseconds, event_.event(), other->event_.event()), "cudaEventElapsedTime");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<float, std::milli>(milliseconds));
}

}  // namespace weft::cuda
