#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace weft::cuda {

/// Every call that Weft makes of the CUDA runtime, with CUDA's name and meaning. It is the seam between what Weft does
/// with streams, events and memory and the GPU that does it: tests put a recording fake in its place. Kernels are
/// launched without it.
struct CudaFunctions {
  // Devices.
  cudaError_t (*get_device_count)(int*);
  cudaError_t (*get_device)(int*);
  cudaError_t (*set_device)(int);
  /// Whether this process has the device's primary context, which set_device() makes and which takes hundreds of
  /// megabytes on the device. True where the driver does not tell.
  bool (*has_context)(int device);
  cudaError_t (*device_get_attribute)(int*, cudaDeviceAttr, int device);
  cudaError_t (*device_get_stream_priority_range)(int* least, int* greatest);
  cudaError_t (*device_synchronize)();  ///< the host waits

  // Streams.
  cudaError_t (*stream_create_with_priority)(cudaStream_t*, unsigned flags, int priority);
  cudaError_t (*stream_destroy)(cudaStream_t);
  cudaError_t (*stream_synchronize)(cudaStream_t);  ///< the host waits
  cudaError_t (*stream_wait_event)(cudaStream_t, cudaEvent_t, unsigned flags);
  cudaError_t (*launch_host_func)(cudaStream_t, cudaHostFn_t, void*);
  /// The driver's cuStreamWaitValue32 and cuStreamWriteValue32 on a word of pinned memory. The first lets the stream go
  /// on once `word` is at least `value` (compared as sequence numbers, so it may wrap); the second sets `word`. They
  /// return cudaErrorNotSupported with drivers before CUDA 12.
  cudaError_t (*stream_wait_value)(cudaStream_t, std::uint32_t* word, std::uint32_t value);
  cudaError_t (*stream_write_value)(cudaStream_t, std::uint32_t* word, std::uint32_t value);
  /// Whether work is being captured on a stream, and the capture's id. The same in every CUDA version, unlike
  /// cudaStreamGetCaptureInfo.
  cudaError_t (*stream_capture)(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long* id);
  /// Can make the calling thread's calls no longer break what other threads capture.
  cudaError_t (*thread_exchange_stream_capture_mode)(cudaStreamCaptureMode*);

  // Graphs.
  cudaError_t (*stream_begin_capture)(cudaStream_t, cudaStreamCaptureMode);
  cudaError_t (*stream_end_capture)(cudaStream_t, cudaGraph_t*);
  /// cudaGraphInstantiate without flags; its arguments differ between CUDA versions.
  cudaError_t (*graph_instantiate)(cudaGraphExec_t*, cudaGraph_t);
  cudaError_t (*graph_launch)(cudaGraphExec_t, cudaStream_t);
  cudaError_t (*graph_destroy)(cudaGraph_t);
  cudaError_t (*graph_exec_destroy)(cudaGraphExec_t);

  // Events.
  cudaError_t (*event_create_with_flags)(cudaEvent_t*, unsigned flags);
  cudaError_t (*event_destroy)(cudaEvent_t);
  cudaError_t (*event_record)(cudaEvent_t, cudaStream_t);
  cudaError_t (*event_query)(cudaEvent_t);
  cudaError_t (*event_synchronize)(cudaEvent_t);  ///< the host waits
  cudaError_t (*event_elapsed_time)(float* milliseconds, cudaEvent_t, cudaEvent_t);

  // Memory.
  cudaError_t (*malloc)(void**, std::size_t);
  cudaError_t (*free)(void*);  ///< the host waits
  cudaError_t (*malloc_async)(void**, std::size_t, cudaStream_t);
  cudaError_t (*free_async)(void*, cudaStream_t);
  cudaError_t (*malloc_from_pool_async)(void**, std::size_t, cudaMemPool_t, cudaStream_t);
  cudaError_t (*mem_pool_create)(cudaMemPool_t*, cudaMemPoolProps const*);
  cudaError_t (*mem_pool_destroy)(cudaMemPool_t);
  cudaError_t (*mem_pool_set_attribute)(cudaMemPool_t, cudaMemPoolAttr, void*);
  cudaError_t (*mem_pool_get_attribute)(cudaMemPool_t, cudaMemPoolAttr, void*);
  cudaError_t (*mem_pool_trim_to)(cudaMemPool_t, std::size_t);
  cudaError_t (*host_alloc)(void**, std::size_t, unsigned flags);
  cudaError_t (*free_host)(void*);
  cudaError_t (*host_register)(void*, std::size_t, unsigned flags);  ///< pins existing memory
  cudaError_t (*host_unregister)(void*);
  cudaError_t (*memcpy_async)(void*, void const*, std::size_t, cudaMemcpyKind, cudaStream_t);
  cudaError_t (*memcpy_2d_async)(void*, std::size_t to_pitch, void const*, std::size_t from_pitch, std::size_t width,
                                 std::size_t rows, cudaMemcpyKind, cudaStream_t);
  cudaError_t (*memset_async)(void*, int, std::size_t, cudaStream_t);

  // Failures.
  cudaError_t (*get_last_error)();
  char const* (*get_error_string)(cudaError_t);
  char const* (*get_error_name)(cudaError_t);
};

/// The CUDA runtime that Weft is linked with.
[[nodiscard]] CudaFunctions const& cuda_runtime() noexcept;

}  // namespace weft::cuda
