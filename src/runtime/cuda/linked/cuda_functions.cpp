#include "runtime/cuda/cuda_functions.hpp"

namespace weft::cuda {
namespace {

cudaError_t stream_capture(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, id, nullptr, nullptr, nullptr, nullptr);
#else
  return cudaStreamGetCaptureInfo(stream, status, id);
#endif
}

cudaError_t graph_instantiate(cudaGraphExec_t* made, cudaGraph_t graph) {
#if CUDART_VERSION >= 12000
  return cudaGraphInstantiate(made, graph, 0);
#else
  return cudaGraphInstantiate(made, graph, nullptr, nullptr, 0);
#endif
}

}  // namespace

CudaFunctions const& cuda_runtime() noexcept {
  static constexpr CudaFunctions kRuntime{
      .get_device_count = cudaGetDeviceCount,
      .get_device = cudaGetDevice,
      .set_device = cudaSetDevice,
      .device_get_attribute = cudaDeviceGetAttribute,
      .device_get_stream_priority_range = cudaDeviceGetStreamPriorityRange,
      .device_synchronize = cudaDeviceSynchronize,
      .stream_create_with_priority = cudaStreamCreateWithPriority,
      .stream_destroy = cudaStreamDestroy,
      .stream_synchronize = cudaStreamSynchronize,
      .stream_wait_event = cudaStreamWaitEvent,
      .launch_host_func = cudaLaunchHostFunc,
      .stream_capture = stream_capture,
      .thread_exchange_stream_capture_mode = cudaThreadExchangeStreamCaptureMode,
      .stream_begin_capture = cudaStreamBeginCapture,
      .stream_end_capture = cudaStreamEndCapture,
      .graph_instantiate = graph_instantiate,
      .graph_launch = cudaGraphLaunch,
      .graph_destroy = cudaGraphDestroy,
      .graph_exec_destroy = cudaGraphExecDestroy,
      .event_create_with_flags = cudaEventCreateWithFlags,
      .event_destroy = cudaEventDestroy,
      .event_record = cudaEventRecord,
      .event_query = cudaEventQuery,
      .event_synchronize = cudaEventSynchronize,
      .event_elapsed_time = cudaEventElapsedTime,
      .malloc = cudaMalloc,
      .free = cudaFree,
      .malloc_async = cudaMallocAsync,
      .free_async = cudaFreeAsync,
      .malloc_from_pool_async = cudaMallocFromPoolAsync,
      .mem_pool_create = cudaMemPoolCreate,
      .mem_pool_destroy = cudaMemPoolDestroy,
      .mem_pool_set_attribute = cudaMemPoolSetAttribute,
      .mem_pool_get_attribute = cudaMemPoolGetAttribute,
      .mem_pool_trim_to = cudaMemPoolTrimTo,
      .host_alloc = cudaHostAlloc,
      .free_host = cudaFreeHost,
      .memcpy_async = cudaMemcpyAsync,
      .memset_async = cudaMemsetAsync,
      .get_last_error = cudaGetLastError,
      .get_error_string = cudaGetErrorString,
      .get_error_name = cudaGetErrorName,
  };
  return kRuntime;
}

}  // namespace weft::cuda
