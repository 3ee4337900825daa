#include "cuda/instant_tables.hpp"

#include <cstdlib>
#include <cstring>

namespace weft::perf {
namespace {

/// What made-up handles point to.
char g_nothing = 0;

template <typename Handle>
Handle handle() noexcept {
  return reinterpret_cast<Handle>(&g_nothing);
}

/// A function of any parameters that does nothing.
template <typename Result, typename... Arguments>
void does_nothing(Result (*&function)(Arguments...)) noexcept {
  function = [](Arguments...) { return Result{}; };  // cudaSuccess, ncclSuccess
}

cudaError_t take(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cuda::CudaFunctions cuda_table() {
  cuda::CudaFunctions table{};
  table.get_device_count = [](int* count) { return *count = 1, cudaSuccess; };
  table.get_device = [](int* device) { return *device = 0, cudaSuccess; };
  does_nothing(table.set_device);
  does_nothing(table.has_context);
  table.device_get_stream_priority_range = [](int* least, int* greatest) {
    return *least = *greatest = 0, cudaSuccess;
  };
  does_nothing(table.device_synchronize);
  table.stream_create_with_priority = [](cudaStream_t* stream, unsigned, int) {
    return *stream = handle<cudaStream_t>(), cudaSuccess;
  };
  does_nothing(table.stream_destroy);
  does_nothing(table.stream_synchronize);
  does_nothing(table.stream_wait_event);
  table.stream_capture = [](cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id) {
    return *status = cudaStreamCaptureStatusNone, *id = 0, cudaSuccess;
  };
  does_nothing(table.thread_exchange_stream_capture_mode);
  table.event_create_with_flags = [](cudaEvent_t* event, unsigned) {
    return *event = handle<cudaEvent_t>(), cudaSuccess;
  };
  does_nothing(table.event_destroy);
  does_nothing(table.event_record);
  does_nothing(table.event_query);
  does_nothing(table.event_synchronize);
  table.malloc = take;
  table.free = [](void* memory) { return std::free(memory), cudaSuccess; };
  table.memset_async = [](void* at, int value, std::size_t bytes, cudaStream_t) {
    return std::memset(at, value, bytes), cudaSuccess;
  };
  does_nothing(table.memcpy_async);
  does_nothing(table.get_last_error);
  table.get_error_string = [](cudaError_t) { return "none"; };
  table.get_error_name = [](cudaError_t) { return "none"; };
  return table;
}

nccl::NcclFunctions nccl_table() {
  nccl::NcclFunctions table{};
  does_nothing(table.get_unique_id);
  table.get_error_string = [](ncclResult_t) { return "none"; };
  table.get_last_error = [](ncclComm_t) { return ""; };
  table.comm_init_rank_config = [](ncclComm_t* made, int, ncclUniqueId, int, ncclConfig_t*) {
    return *made = handle<ncclComm_t>(), ncclSuccess;
  };
  table.comm_get_async_error = [](ncclComm_t, ncclResult_t* state) { return *state = ncclSuccess, ncclSuccess; };
  does_nothing(table.comm_finalize);
  does_nothing(table.comm_destroy);
  does_nothing(table.comm_abort);
  does_nothing(table.comm_revoke);
  does_nothing(table.group_start);
  does_nothing(table.group_end);
  does_nothing(table.all_reduce);
  does_nothing(table.reduce);
  does_nothing(table.reduce_scatter);
  does_nothing(table.all_gather);
  does_nothing(table.broadcast);
  does_nothing(table.all_to_all);
  does_nothing(table.gather);
  does_nothing(table.scatter);
  does_nothing(table.send);
  does_nothing(table.recv);
  return table;
}

}  // namespace

nccl::Libraries instant_libraries() {
  static cuda::CudaFunctions const cuda = cuda_table();
  auto nccl = std::make_shared<nccl::NcclLibrary>();
  nccl->functions = nccl_table();
  nccl->version = NCCL_VERSION_CODE;
  nccl->path = "does nothing";
  return {&cuda, std::move(nccl), 0};
}

}  // namespace weft::perf
