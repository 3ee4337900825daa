#include "runtime/cuda/event_pool.hpp"

#include "runtime/cuda/check.hpp"

namespace weft::cuda {

// Fails only where the context is gone, and its events with it.
OwnEvent::~OwnEvent() {
  if (event_ != nullptr) static_cast<void>(cuda_->event_destroy(event_));
}

void OwnEvent::create(int device, unsigned flags, CudaFunctions const& cuda) {
  DeviceGuard const guard(device, cuda);
  check(cuda, cuda.event_create_with_flags(&event_, flags), "cudaEventCreateWithFlags");
  cuda_ = &cuda;
}

}  // namespace weft::cuda
