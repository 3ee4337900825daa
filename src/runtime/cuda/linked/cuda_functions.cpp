#include "runtime/cuda/cuda_functions.hpp"

#include <cuda.h>

namespace weft::cuda {
namespace {

cudaError_t graph_instantiate(cudaGraphExec_t* made, cudaGraph_t graph) {
#if CUDART_VERSION >= 12000
  return cudaGraphInstantiate(made, graph, 0);
#else
  return cudaGraphInstantiate(made, graph, nullptr, nullptr, 0);
#endif
}

/// Finds one of the driver's functions, as of CUDA 12, through the runtime, because Weft does not link the driver. Null
/// where there is none.
template <typename Function>
Function driver_function(char const* name) noexcept {
  void* found = nullptr;
#if CUDART_VERSION >= 12000
  cudaDriverEntryPointQueryResult how{};
#if CUDART_VERSION >= 12050
  auto const status = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how);
#else
  auto const status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how);
#endif
  if (status != cudaSuccess || how != cudaDriverEntryPointSuccess) found = nullptr;
#else
  static_cast<void>(name);
#endif
  return reinterpret_cast<Function>(found);
}

// These two run in every call on a GPU, where the driver's functions take two thirds of the runtime's time. Where the
// driver refuses, and for the default stream, which is the current device's, the runtime decides.

cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
  using Function = CUresult (*)(CUevent, CUstream);
  static auto const record = driver_function<Function>("cuEventRecord");
  if (record != nullptr && stream != nullptr && record(event, stream) == CUDA_SUCCESS) return cudaSuccess;
  return cudaEventRecord(event, stream);
}

cudaError_t stream_capture(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
  using Function =
      CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, CUgraphNode const**, std::size_t*);
  static auto const capture = driver_function<Function>("cuStreamGetCaptureInfo");
  if (capture != nullptr && stream != nullptr) {
    auto found = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    if (capture(stream, &found, &number, nullptr, nullptr, nullptr) == CUDA_SUCCESS) {
      *status = static_cast<cudaStreamCaptureStatus>(found);
      *id = number;
      return cudaSuccess;
    }
  }
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, id, nullptr, nullptr, nullptr, nullptr);
#else
  return cudaStreamGetCaptureInfo(stream, status, id);
#endif
}

bool has_context(int device) {
  using Find = CUresult (*)(CUdevice*, int);
  using Ask = CUresult (*)(CUdevice, unsigned*, int*);
  static auto const find = driver_function<Find>("cuDeviceGet");
  static auto const ask = driver_function<Ask>("cuDevicePrimaryCtxGetState");
  CUdevice handle = 0;
  unsigned flags = 0;
  int active = 0;
  bool const told = find != nullptr && ask != nullptr && find(&handle, device) == CUDA_SUCCESS &&
                    ask(handle, &flags, &active) == CUDA_SUCCESS;
  return !told || active != 0;
}

using ValueFunction = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

/// The driver's error codes are the same numbers as the runtime's.
cudaError_t call_driver(ValueFunction function, cudaStream_t stream, std::uint32_t* word, std::uint32_t value,
                        unsigned flags) noexcept {
  if (function == nullptr) return cudaErrorNotSupported;
  return static_cast<cudaError_t>(function(stream, reinterpret_cast<CUdeviceptr>(word), value, flags));
}

cudaError_t stream_wait_value(cudaStream_t stream, std::uint32_t* word, std::uint32_t value) {
  static auto const wait = driver_function<ValueFunction>("cuStreamWaitValue32");
  return call_driver(wait, stream, word, value, CU_STREAM_WAIT_VALUE_GEQ);
}

cudaError_t stream_write_value(cudaStream_t stream, std::uint32_t* word, std::uint32_t value) {
  static auto const write = driver_function<ValueFunction>("cuStreamWriteValue32");
  return call_driver(write, stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

}  // namespace

CudaFunctions const& cuda_runtime() noexcept {
  static constexpr CudaFunctions kRuntime{
      .get_device_count = cudaGetDeviceCount,
      .get_device = cudaGetDevice,
      .set_device = cudaSetDevice,
      .has_context = has_context,
      .device_get_attribute = cudaDeviceGetAttribute,
      .device_get_stream_priority_range = cudaDeviceGetStreamPriorityRange,
      .device_synchronize = cudaDeviceSynchronize,
      .stream_create_with_priority = cudaStreamCreateWithPriority,
      .stream_destroy = cudaStreamDestroy,
      .stream_synchronize = cudaStreamSynchronize,
      .stream_wait_event = cudaStreamWaitEvent,
      .launch_host_func = cudaLaunchHostFunc,
      .stream_wait_value = stream_wait_value,
      .stream_write_value = stream_write_value,
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
      .event_record = event_record,
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
      .host_register = cudaHostRegister,
      .host_unregister = cudaHostUnregister,
      .memcpy_async = cudaMemcpyAsync,
      .memcpy_2d_async = cudaMemcpy2DAsync,
      .memset_async = cudaMemsetAsync,
      .get_last_error = cudaGetLastError,
      .get_error_string = cudaGetErrorString,
      .get_error_name = cudaGetErrorName,
  };
  return kRuntime;
}

}  // namespace weft::cuda
