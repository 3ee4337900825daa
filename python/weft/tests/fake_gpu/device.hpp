#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace weft::test {

/// Puts the FakeGpu behind torch's "cuda": streams, events, memory and the few operators that tests need. For the rest
/// of the process.
void install_fake_cuda(int devices);

/// A new stream of torch's.
[[nodiscard]] c10::Stream new_stream(c10::DeviceIndex device);
[[nodiscard]] c10::Stream stream_of(c10::StreamId id, c10::DeviceIndex device);
[[nodiscard]] c10::Stream current_stream(c10::DeviceIndex device);
void set_current_stream(c10::Stream stream);
[[nodiscard]] cudaStream_t handle_of(c10::Stream stream);

/// Memory as torch's allocator gives it: freed in the order of the stream that was current when it was allocated, after
/// what was on the streams that record_use() named; then overwritten.
[[nodiscard]] c10::Allocator* fake_allocator();
void record_use(c10::DataPtr const& memory, cudaStream_t stream);
/// How often that was asked for.
[[nodiscard]] std::size_t recorded_uses();

/// Uninitialised, on the calling thread's current device.
[[nodiscard]] at::Tensor empty_on_gpu(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);
/// The same memory as the CPU sees it; nobody waits, nothing is kept alive.
[[nodiscard]] at::Tensor host_view(at::Tensor const& tensor);

}  // namespace weft::test
