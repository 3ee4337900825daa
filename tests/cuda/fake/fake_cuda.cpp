// The table of CUDA's functions that FakeGpu stands behind.
#include <chrono>
#include <cstring>
#include <utility>

#include "cuda/fake/fake_gpu.hpp"
#include "cuda/fake/fake_queue.hpp"

namespace weft::test {

/// Functions without state of their own; what they need of FakeGpu's insides they are friends for.
struct FakeCuda {
  using Event = FakeGpu::Event;

  static thread_local cudaStreamCaptureMode mode;

  static FakeGpu& gpu() { return FakeGpu::current(); }
  static Event* event_of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

  /// What cudaGetLastError knows from now on.
  static cudaError_t left(cudaError_t status) {
    if (status != cudaSuccess) FakeGpu::last_error = status;
    return status;
  }
  /// Records the call; what it is to fail with.
  static cudaError_t begin(char const* name, void const* on, std::size_t bytes = 0) {
    gpu().record(name, on, bytes);
    return left(gpu().take_failure(name));
  }

  /// Of calls that break a capture in global mode, whichever thread makes them.
  static cudaError_t unsafe(char const* name) {
    bool captures = false;
    {
      std::scoped_lock const lock(gpu().mutex_);
      auto const own = gpu().own_.find(std::this_thread::get_id());
      captures = gpu().capturing_ > 0 || (own != gpu().own_.end() && own->second > 0);
    }
    if (!captures || mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    gpu().violate(std::string(name) + " during a capture");
    return cudaErrorStreamCaptureUnsupported;
  }

  static cudaError_t get_device_count(int* count) {
    *count = gpu().devices_;
    return cudaSuccess;
  }
  static cudaError_t get_device(int* current) {
    *current = FakeGpu::current_device;
    return cudaSuccess;
  }
  static cudaError_t set_device(int wanted) {
    FakeGpu::current_device = wanted;
    gpu().touch(wanted);
    return cudaSuccess;
  }
  static bool has_context(int device) {
    std::scoped_lock const lock(gpu().mutex_);
    return gpu().contexts_.count(device) != 0;
  }
  static cudaError_t device_get_attribute(int* value, cudaDeviceAttr /*attribute*/, int /*device*/) {
    *value = 1;
    return cudaSuccess;
  }
  static cudaError_t stream_priority_range(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  }

  static cudaError_t device_synchronize() {
    if (auto const status = begin("cudaDeviceSynchronize", nullptr); status != cudaSuccess) return status;
    if (auto const status = unsafe("cudaDeviceSynchronize"); status != cudaSuccess) return status;
    std::vector<cudaStream_t> streams{nullptr};
    {
      std::scoped_lock const lock(gpu().mutex_);
      for (auto const& [handle, queue] : gpu().streams_) {
        if (queue->maker() == std::this_thread::get_id())
          streams.push_back(handle);  // processes do not wait for others
      }
    }
    for (auto* const stream : streams) wait_for(stream);
    return cudaSuccess;
  }
  static void wait_for(cudaStream_t stream) {
    auto const queue = gpu().queue_of(stream);
    if (!queue) return;
    auto const end = std::make_shared<Signal>(gpu().ending());
    queue->push([end] { end->set(); });
    end->wait(queue->broken());
  }

  static cudaError_t stream_create(cudaStream_t* stream, unsigned /*flags*/, int priority) {
    auto const status =
        begin(priority < 0 ? "cudaStreamCreateWithPriority(high)" : "cudaStreamCreateWithPriority", nullptr);
    if (status != cudaSuccess) return status;
    gpu().touch(FakeGpu::current_device);
    auto queue = std::make_shared<FakeGpu::Queue>(gpu().ending());
    *stream = reinterpret_cast<cudaStream_t>(queue.get());
    std::scoped_lock const lock(gpu().mutex_);
    gpu().streams_[*stream] = std::move(queue);
    return cudaSuccess;
  }
  static cudaError_t stream_destroy(cudaStream_t stream) {
    begin("cudaStreamDestroy", stream);
    std::scoped_lock const lock(gpu().mutex_);
    auto const found = gpu().streams_.find(stream);
    if (found == gpu().streams_.end()) return cudaErrorInvalidResourceHandle;
    gpu().gone_.push_back(found->second);
    gpu().streams_.erase(found);
    return cudaSuccess;
  }
  static cudaError_t stream_synchronize(cudaStream_t stream) {
    if (auto const status = begin("cudaStreamSynchronize", stream); status != cudaSuccess) return status;
    if (auto const status = unsafe("cudaStreamSynchronize"); status != cudaSuccess) return status;
    auto const queue = gpu().queue_of(stream);
    if (!queue || !queue->broken()) wait_for(stream);
    if (!queue || !queue->broken()) return cudaSuccess;
    queue->drain();
    return left(cudaErrorIllegalAddress);
  }
  static cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
    if (auto const status = begin("cudaStreamWaitEvent", stream); status != cudaSuccess) return status;
    auto const queue = gpu().queue_of(stream);
    auto* const what = event_of(event);
    std::scoped_lock const lock(what->mutex);
    auto const capture = queue->capture();
    if (what->capture && !capture) queue->join(what->capture);  // the stream takes part from now on
    if (auto const joined = queue->capture(); joined && joined == what->capture) {
      joined->follow(queue.get(), what->seen);
      return cudaSuccess;
    }
    if (capture) {
      if (!what->point && !what->capture) return cudaSuccess;
      gpu().violate("a stream under capture waits for what was not captured with it");
      return cudaErrorStreamCaptureIsolation;
    }
    if (auto const point = what->point) queue->push([point, on = queue.get()] { point->wait(on->broken()); });
    return cudaSuccess;
  }
  static cudaError_t launch_host_func(cudaStream_t stream, cudaHostFn_t function, void* data) {
    if (auto const status = begin("cudaLaunchHostFunc", stream); status != cudaSuccess) return status;
    return gpu().enqueue(stream, [function, data] { function(data); });
  }
  /// Streams under capture have nobody who would set the word.
  static cudaError_t on_word(char const* name, cudaStream_t stream, std::function<void()> task) {
    if (auto const status = begin(name, stream); status != cudaSuccess) return status;
    if (gpu().is_capturing(stream)) gpu().violate(std::string(name) + " during a capture");
    return gpu().enqueue(stream, std::move(task));
  }
  static cudaError_t stream_wait_value(cudaStream_t stream, std::uint32_t* word, std::uint32_t value) {
    auto const queue = gpu().queue_of(stream);
    return on_word("cuStreamWaitValue32", stream, [word, value, &ending = gpu().ending(), on = queue.get()] {
      std::atomic_ref const seen(*word);
      while (!on->broken() && static_cast<std::int32_t>(seen.load(std::memory_order_acquire) - value) < 0 && !ending)
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
  }
  static cudaError_t stream_write_value(cudaStream_t stream, std::uint32_t* word, std::uint32_t value) {
    return on_word("cuStreamWriteValue32", stream,
                   [word, value] { std::atomic_ref(*word).store(value, std::memory_order_release); });
  }
  static cudaError_t stream_capture(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
    auto const capture = gpu().queue_of(stream)->capture();
    *status = capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    *id = capture ? capture->id : 0;
    return cudaSuccess;
  }
  static cudaError_t exchange_capture_mode(cudaStreamCaptureMode* wanted) {
    std::swap(*wanted, mode);
    return cudaSuccess;
  }

  static std::shared_ptr<FakeGpu::Graph const>* keep(std::shared_ptr<FakeGpu::Graph const> graph) {
    auto* const kept = new std::shared_ptr(std::move(graph));
    std::scoped_lock const lock(gpu().mutex_);
    gpu().graphs_.insert(kept);
    return kept;
  }
  static void forget(void* graph) {
    auto* const kept = static_cast<std::shared_ptr<FakeGpu::Graph const>*>(graph);
    {
      std::scoped_lock const lock(gpu().mutex_);
      if (gpu().graphs_.erase(kept) == 0) return;
    }
    delete kept;  // which gives back its memory
  }
  static cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode wanted) {
    if (auto const status = begin("cudaStreamBeginCapture", stream); status != cudaSuccess) return status;
    gpu().begin_capture(stream, wanted);
    return cudaSuccess;
  }
  static cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph) {
    if (auto const status = begin("cudaStreamEndCapture", stream); status != cudaSuccess) {
      static_cast<void>(gpu().end_capture(stream));  // it is over all the same
      return status;
    }
    auto captured = gpu().end_capture(stream);
    if (!captured) return left(cudaErrorStreamCaptureUnjoined);
    *graph = reinterpret_cast<cudaGraph_t>(keep(std::move(captured)));
    return cudaSuccess;
  }
  static cudaError_t graph_instantiate(cudaGraphExec_t* made, cudaGraph_t graph) {
    if (auto const status = begin("cudaGraphInstantiate", nullptr); status != cudaSuccess) return status;
    *made = reinterpret_cast<cudaGraphExec_t>(keep(*reinterpret_cast<std::shared_ptr<FakeGpu::Graph const>*>(graph)));
    return cudaSuccess;
  }
  static cudaError_t graph_launch(cudaGraphExec_t graph, cudaStream_t stream) {
    if (auto const status = begin("cudaGraphLaunch", stream); status != cudaSuccess) return status;
    gpu().launch(*reinterpret_cast<std::shared_ptr<FakeGpu::Graph const>*>(graph), stream);
    return cudaSuccess;
  }
  static cudaError_t graph_destroy(cudaGraph_t graph) {
    forget(graph);
    return begin("cudaGraphDestroy", nullptr);
  }
  static cudaError_t graph_exec_destroy(cudaGraphExec_t graph) {
    forget(graph);
    return begin("cudaGraphExecDestroy", nullptr);
  }

  static cudaError_t event_create(cudaEvent_t* event, unsigned /*flags*/) {
    if (auto const status = begin("cudaEventCreateWithFlags", nullptr); status != cudaSuccess) return status;
    auto* const made = new Event;
    *event = reinterpret_cast<cudaEvent_t>(made);
    std::scoped_lock const lock(gpu().mutex_);
    gpu().events_.insert(made);
    return cudaSuccess;
  }
  static cudaError_t event_destroy(cudaEvent_t event) {
    begin("cudaEventDestroy", event);
    {
      std::scoped_lock const lock(gpu().mutex_);
      if (gpu().events_.erase(event_of(event)) == 0) return cudaErrorInvalidResourceHandle;
    }
    delete event_of(event);
    return cudaSuccess;
  }
  static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
    if (auto const status = begin("cudaEventRecord", stream); status != cudaSuccess) return status;
    auto* const what = event_of(event);
    auto const queue = gpu().queue_of(stream);
    auto const capture = queue->capture();
    std::scoped_lock const lock(what->mutex);
    what->capture = capture;
    what->point = nullptr;
    if (capture) what->seen = capture->seen_by(queue.get());
    if (capture) return cudaSuccess;
    auto const point = std::make_shared<Signal>(gpu().ending());
    what->point = point;
    what->on = queue;
    return gpu().enqueue(stream, [point] { point->set(); });
  }
  /// What is to be reached, or null with the reason why that cannot be asked.
  static std::shared_ptr<Signal> point_of(cudaEvent_t event, char const* name, cudaError_t& why) {
    why = unsafe(name);
    auto* const what = event_of(event);
    std::scoped_lock const lock(what->mutex);
    if (what->capture) {
      gpu().violate(std::string(name) + " of a captured event");
      why = cudaErrorCapturedEvent;
    }
    if (what->point && what->on->broken()) why = left(cudaErrorIllegalAddress);
    return why == cudaSuccess ? what->point : nullptr;
  }
  static cudaError_t event_query(cudaEvent_t event) {
    if (auto const status = begin("cudaEventQuery", event); status != cudaSuccess) return status;
    cudaError_t why = cudaSuccess;
    auto const point = point_of(event, "cudaEventQuery", why);
    if (!point) return why;
    return left(point->is_set() ? cudaSuccess : cudaErrorNotReady);
  }
  static cudaError_t event_synchronize(cudaEvent_t event) {
    if (auto const status = begin("cudaEventSynchronize", event); status != cudaSuccess) return status;
    cudaError_t why = cudaSuccess;
    if (auto const point = point_of(event, "cudaEventSynchronize", why)) point->wait();
    return why;
  }
  static cudaError_t event_elapsed_time(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    cudaError_t why = cudaSuccess;
    auto const first = point_of(from, "cudaEventElapsedTime", why);
    auto const last = point_of(to, "cudaEventElapsedTime", why);
    if (!first || !last) return cudaErrorInvalidResourceHandle;
    *milliseconds = std::chrono::duration<float, std::milli>(last->when() - first->when()).count();
    return cudaSuccess;
  }

  static cudaError_t allocate(char const* name, void** memory, std::size_t bytes, void const* on) {
    if (auto const status = begin(name, on, bytes); status != cudaSuccess) return status;
    gpu().touch(FakeGpu::current_device);
    *memory = gpu().take_memory(bytes);
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  }
  static cudaError_t malloc(void** memory, std::size_t bytes) { return allocate("cudaMalloc", memory, bytes, nullptr); }
  static cudaError_t free(void* memory) {
    begin("cudaFree", nullptr);
    gpu().return_memory(memory);
    return cudaSuccess;
  }
  static cudaError_t allocate_in_order(char const* name, void** memory, std::size_t bytes, cudaStream_t stream) {
    auto const queue = gpu().queue_of(stream);
    auto const capture = queue ? queue->capture() : nullptr;
    if (!capture) return allocate(name, memory, bytes, stream);
    if (auto const status = begin(name, stream, bytes); status != cudaSuccess) return status;
    *memory = capture->allocate(queue.get(), bytes);
    return cudaSuccess;
  }
  static cudaError_t malloc_async(void** memory, std::size_t bytes, cudaStream_t stream) {
    return allocate_in_order("cudaMallocAsync", memory, bytes, stream);
  }
  static cudaError_t malloc_from_pool(void** memory, std::size_t bytes, cudaMemPool_t /*pool*/, cudaStream_t stream) {
    return allocate_in_order("cudaMallocFromPoolAsync", memory, bytes, stream);
  }
  static cudaError_t free_async(void* memory, cudaStream_t stream) {
    begin("cudaFreeAsync", stream);
    auto const queue = gpu().queue_of(stream);
    if (auto const capture = queue ? queue->capture() : nullptr) {
      if (capture->free(queue.get(), memory)) return cudaSuccess;
      gpu().violate("a graph frees memory that it did not take");
      return cudaErrorInvalidValue;
    }
    return gpu().enqueue(stream, [memory] { gpu().return_memory(memory); });
  }
  static cudaError_t pool_create(cudaMemPool_t* pool, cudaMemPoolProps const* /*wanted*/) {
    static int pools = 0;
    *pool = reinterpret_cast<cudaMemPool_t>(&pools);
    return begin("cudaMemPoolCreate", nullptr);
  }
  static cudaError_t pool_destroy(cudaMemPool_t /*pool*/) { return begin("cudaMemPoolDestroy", nullptr); }
  static cudaError_t pool_set(cudaMemPool_t /*pool*/, cudaMemPoolAttr /*what*/, void* /*value*/) {
    return begin("cudaMemPoolSetAttribute", nullptr);
  }
  static cudaError_t pool_get(cudaMemPool_t /*pool*/, cudaMemPoolAttr /*what*/, void* value) {
    *static_cast<std::uint64_t*>(value) = gpu().live_bytes();
    return cudaSuccess;
  }
  static cudaError_t pool_trim(cudaMemPool_t /*pool*/, std::size_t bytes) {
    return begin("cudaMemPoolTrimTo", nullptr, bytes);
  }
  static cudaError_t host_alloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
    return allocate("cudaHostAlloc", memory, bytes, nullptr);
  }
  static cudaError_t free_host(void* memory) {
    gpu().touch(FakeGpu::current_device);
    begin("cudaFreeHost", nullptr);
    gpu().return_memory(memory);
    return cudaSuccess;
  }
  static cudaError_t memcpy_async(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                                  cudaStream_t stream) {
    if (auto const status = begin("cudaMemcpyAsync", stream, bytes); status != cudaSuccess) return status;
    auto const maker = gpu().queue_of(stream)->maker();
    return gpu().enqueue(stream, [=] {
      if (kind == cudaMemcpyHostToDevice && gpu().breaks_at_copy_in_ == maker) return gpu().break_streams_of(maker);
      std::memcpy(to, from, bytes);
      gpu().note_copy();
    });
  }
  static cudaError_t memcpy_2d_async(void* to, std::size_t to_pitch, void const* from, std::size_t from_pitch,
                                     std::size_t width, std::size_t rows, cudaMemcpyKind /*kind*/,
                                     cudaStream_t stream) {
    if (auto const status = begin("cudaMemcpy2DAsync", stream, width * rows); status != cudaSuccess) return status;
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
    constexpr std::size_t kMostPitch = 2147483647;
    if (to_pitch > kMostPitch || from_pitch > kMostPitch) return left(cudaErrorInvalidPitchValue);
    return gpu().enqueue(stream, [=] {
      for (std::size_t row = 0; row < rows; ++row) {
        std::memcpy(static_cast<std::byte*>(to) + row * to_pitch,
                    static_cast<std::byte const*>(from) + row * from_pitch, width);
      }
      gpu().note_copy();
    });
  }
  static cudaError_t host_register(void* /*memory*/, std::size_t bytes, unsigned /*flags*/) {
    gpu().touch(FakeGpu::current_device);
    return begin("cudaHostRegister", nullptr, bytes);
  }
  static cudaError_t host_unregister(void* /*memory*/) { return begin("cudaHostUnregister", nullptr); }
  static cudaError_t memset_async(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
    if (auto const status = begin("cudaMemsetAsync", stream, bytes); status != cudaSuccess) return status;
    return gpu().enqueue(stream, [=] { std::memset(memory, value, bytes); });
  }

  static cudaError_t get_last_error() { return std::exchange(FakeGpu::last_error, cudaSuccess); }
  static char const* error_string(cudaError_t /*error*/) { return "injected"; }
  static char const* error_name(cudaError_t /*error*/) { return "cudaErrorInjected"; }
};

thread_local cudaStreamCaptureMode FakeCuda::mode = cudaStreamCaptureModeGlobal;

cuda::CudaFunctions const& FakeGpu::functions() {
  static constexpr cuda::CudaFunctions kTable{
      .get_device_count = FakeCuda::get_device_count,
      .get_device = FakeCuda::get_device,
      .set_device = FakeCuda::set_device,
      .has_context = FakeCuda::has_context,
      .device_get_attribute = FakeCuda::device_get_attribute,
      .device_get_stream_priority_range = FakeCuda::stream_priority_range,
      .device_synchronize = FakeCuda::device_synchronize,
      .stream_create_with_priority = FakeCuda::stream_create,
      .stream_destroy = FakeCuda::stream_destroy,
      .stream_synchronize = FakeCuda::stream_synchronize,
      .stream_wait_event = FakeCuda::stream_wait_event,
      .launch_host_func = FakeCuda::launch_host_func,
      .stream_wait_value = FakeCuda::stream_wait_value,
      .stream_write_value = FakeCuda::stream_write_value,
      .stream_capture = FakeCuda::stream_capture,
      .thread_exchange_stream_capture_mode = FakeCuda::exchange_capture_mode,
      .stream_begin_capture = FakeCuda::begin_capture,
      .stream_end_capture = FakeCuda::end_capture,
      .graph_instantiate = FakeCuda::graph_instantiate,
      .graph_launch = FakeCuda::graph_launch,
      .graph_destroy = FakeCuda::graph_destroy,
      .graph_exec_destroy = FakeCuda::graph_exec_destroy,
      .event_create_with_flags = FakeCuda::event_create,
      .event_destroy = FakeCuda::event_destroy,
      .event_record = FakeCuda::event_record,
      .event_query = FakeCuda::event_query,
      .event_synchronize = FakeCuda::event_synchronize,
      .event_elapsed_time = FakeCuda::event_elapsed_time,
      .malloc = FakeCuda::malloc,
      .free = FakeCuda::free,
      .malloc_async = FakeCuda::malloc_async,
      .free_async = FakeCuda::free_async,
      .malloc_from_pool_async = FakeCuda::malloc_from_pool,
      .mem_pool_create = FakeCuda::pool_create,
      .mem_pool_destroy = FakeCuda::pool_destroy,
      .mem_pool_set_attribute = FakeCuda::pool_set,
      .mem_pool_get_attribute = FakeCuda::pool_get,
      .mem_pool_trim_to = FakeCuda::pool_trim,
      .host_alloc = FakeCuda::host_alloc,
      .free_host = FakeCuda::free_host,
      .host_register = FakeCuda::host_register,
      .host_unregister = FakeCuda::host_unregister,
      .memcpy_async = FakeCuda::memcpy_async,
      .memcpy_2d_async = FakeCuda::memcpy_2d_async,
      .memset_async = FakeCuda::memset_async,
      .get_last_error = FakeCuda::get_last_error,
      .get_error_string = FakeCuda::error_string,
      .get_error_name = FakeCuda::error_name,
  };
  return kTable;
}

}  // namespace weft::test

// In place of src/runtime/cuda/linked.
weft::cuda::CudaFunctions const& weft::cuda::cuda_runtime() noexcept {
  return test::FakeGpu::functions();
}
