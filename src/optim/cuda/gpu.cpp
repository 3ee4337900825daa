#include "optim/cuda/gpu.hpp"

#include <string>

namespace weft::cuda {

void Gpu::write(void* to, void const* from, std::size_t bytes) const {
  if (bytes == 0) return;
  DeviceGuard const guard(device_);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // a copy from pageable memory may still be under way
}

void Gpu::read(void* to, void const* from, std::size_t bytes) const {
  if (bytes == 0) return;
  DeviceGuard const guard(device_);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
}

void Gpu::synchronize() const {
  DeviceGuard const guard(device_);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

bool Gpu::is_capturing(Stream const* stream) const {
  if (stream == nullptr) return false;  // the legacy default stream cannot be captured
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  check(cuda_runtime().stream_capture(stream_of(stream), &status, &id), "cudaStreamGetCaptureInfo");
  return status != cudaStreamCaptureStatusNone;
}

StreamHandle Gpu::stream_of(Stream const* stream) const {
  if (stream == nullptr) return nullptr;
  if (stream->device() != device()) {
    throw Error(ErrorCode::invalid_argument,
                "the stream is on " + to_string(stream->device()) + ", the tensors on " + to_string(device()));
  }
  return handle_of(*stream);
}

}  // namespace weft::cuda
