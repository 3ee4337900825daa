#include "runtime/cuda/cuda_work.hpp"

#include <utility>

namespace weft::cuda {

CudaCompletion::CudaCompletion(CudaStream const& stream, EventPool::Lease event,
                               std::shared_ptr<SharedFailure const> failure, bool captured)
    : cuda_(stream.cuda()), event_(std::move(event)), failure_(std::move(failure)), captured_(captured) {
  DefaultStreamGuard const guard(stream);
  check(cuda_, cuda_.event_record(event_.event(), stream.handle()), "cudaEventRecord");
}

bool CudaCompletion::wait_on(Stream const& stream) const {
  CudaStream* const on = as_cuda(stream);
  if (on == nullptr) return false;
  on->launch_deferred();
  DefaultStreamGuard const guard(*on);
  check(cuda_, cuda_.stream_wait_event(on->handle(), event_.event(), 0), "cudaStreamWaitEvent");
  return true;
}

}  // namespace weft::cuda
