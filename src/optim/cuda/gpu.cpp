#include "optim/cuda/gpu.hpp"

#include <string>

namespace weft::cuda {

void Gpu::write(void* to, void const* from, std::size_t bytes) const {
  copy(to, from, bytes);
}

void Gpu::read(void* to, void const* from, std::size_t bytes) const {
  copy(to, from, bytes);
}

// Waits for the device first: the copy is made in the order of the legacy default stream, which does not wait for
// streams like ours by itself.
void Gpu::copy(void* to, void const* from, std::size_t bytes) const {
  if (bytes == 0) return;
  DeviceGuard const guard(device_);
  auto const& cuda = cuda_runtime();
  check(cuda.device_synchronize(), "cudaDeviceSynchronize");
  check(cuda.memcpy_async(to, from, bytes, cudaMemcpyDefault, nullptr), "cudaMemcpyAsync");
  check(cuda.stream_synchronize(nullptr), "cudaStreamSynchronize");
}

void Gpu::synchronize() const {
  DeviceGuard const guard(device_);
  check(cuda_runtime().device_synchronize(), "cudaDeviceSynchronize");
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
