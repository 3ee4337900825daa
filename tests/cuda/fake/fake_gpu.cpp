#include "cuda/fake/fake_gpu.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cuda/fake/fake_queue.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "runtime/cuda/memory_pool.hpp"

namespace weft::test {
namespace {

std::atomic<FakeGpu*> the_gpu{nullptr};

}  // namespace

thread_local int FakeGpu::current_device = 0;
thread_local cudaError_t FakeGpu::last_error = cudaSuccess;

void Signal::set() {
  {
    std::scoped_lock const lock(mutex_);
    set_ = true;
    when_ = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}

bool Signal::is_set() const {
  std::scoped_lock const lock(mutex_);
  return set_;
}

void Signal::wait() const {
  std::unique_lock lock(mutex_);
  while (!set_ && !ending_) changed_.wait_for(lock, std::chrono::milliseconds(20));
}

void Signal::wait(std::atomic<bool> const& given_up) const {
  std::unique_lock lock(mutex_);
  while (!set_ && !ending_ && !given_up) changed_.wait_for(lock, std::chrono::milliseconds(20));
}

std::chrono::steady_clock::time_point Signal::when() const {
  std::scoped_lock const lock(mutex_);
  return when_;
}

FakeGpu::FakeGpu(int devices) : devices_(devices) {
  for (int device = 0; device < devices; ++device) defaults_.push_back(std::make_shared<Queue>(ending_));
  FakeGpu* none = nullptr;
  if (!the_gpu.compare_exchange_strong(none, this)) std::abort();  // two at once
}

FakeGpu::~FakeGpu() {
  ending_ = true;
  std::vector<std::shared_ptr<Queue>> queues = std::move(gone_);
  for (auto& [handle, queue] : streams_) queues.push_back(queue);
  queues.insert(queues.end(), defaults_.begin(), defaults_.end());
  for (auto const& queue : queues) queue->end();
  for (auto* const graph : graphs_) delete graph;
  the_gpu = nullptr;
  for (auto const& [memory, bytes] : memory_) std::free(memory);
}

FakeGpu& FakeGpu::current() {
  return *the_gpu.load();
}

Stream FakeGpu::make_stream(bool high_priority, int device) const {
  return Stream(std::make_shared<cuda::CudaStream>(
      cuda::StreamOptions{.device = device, .high_priority = high_priority}, functions()));
}

Buffer FakeGpu::allocate(std::size_t count, DataType dtype, int device) const {
  return cuda::allocate(count, dtype, device, functions());
}

void FakeGpu::record(char const* name, void const* on, std::size_t bytes, int group_depth) {
  std::scoped_lock const lock(mutex_);
  calls_.push_back({name, on, bytes, group_depth, std::this_thread::get_id()});
}

std::vector<FakeCall> FakeGpu::calls() const {
  std::scoped_lock const lock(mutex_);
  return calls_;
}

std::size_t FakeGpu::count(std::string const& name) const {
  std::scoped_lock const lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(calls_.begin(), calls_.end(), [&](FakeCall const& call) { return call.name == name; }));
}

std::size_t FakeGpu::count_here(std::string const& name) const {
  std::scoped_lock const lock(mutex_);
  return static_cast<std::size_t>(std::count_if(calls_.begin(), calls_.end(), [&](FakeCall const& call) {
    return call.name == name && call.thread == std::this_thread::get_id();
  }));
}

std::size_t FakeGpu::host_waits_here() const {
  std::size_t waits = 0;
  for (auto const* name :
       {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaEventQuery", "cudaFree", "cudaDeviceSynchronize"})
    waits += count_here(name);
  return waits;
}

void FakeGpu::forget_calls() {
  std::scoped_lock const lock(mutex_);
  calls_.clear();
}

std::vector<std::string> FakeGpu::violations() const {
  std::scoped_lock const lock(mutex_);
  return violations_;
}

void FakeGpu::violate(std::string const& what) {
  std::scoped_lock const lock(mutex_);
  violations_.push_back(what);
}

void FakeGpu::fail_next(std::string const& name, cudaError_t error) {
  std::scoped_lock const lock(mutex_);
  failures_[name].push_back(error);
}

cudaError_t FakeGpu::take_failure(std::string const& name) {
  std::scoped_lock const lock(mutex_);
  auto const found = failures_.find(name);
  if (found == failures_.end() || found->second.empty()) return cudaSuccess;
  auto const error = found->second.front();
  found->second.pop_front();
  return error;
}

std::shared_ptr<FakeGpu::Queue> FakeGpu::queue_of(cudaStream_t stream) const {
  std::scoped_lock const lock(mutex_);
  if (stream == nullptr) return defaults_.at(static_cast<std::size_t>(current_device));
  auto const found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}

void FakeGpu::hold(Stream const& stream) {
  queue_of(cuda::handle_of(stream))->hold(true);
}

void FakeGpu::release(Stream const& stream) {
  queue_of(cuda::handle_of(stream))->hold(false);
}

void FakeGpu::break_streams_here() {
  break_streams_of(std::this_thread::get_id());
}

void FakeGpu::break_streams_of(std::thread::id maker) {
  std::scoped_lock const lock(mutex_);
  for (auto const& [handle, queue] : streams_) {
    if (queue->maker() == maker) queue->break_down();
  }
}

cudaError_t FakeGpu::enqueue(cudaStream_t stream, std::function<void()> task) {
  auto const queue = queue_of(stream);
  if (!queue) {
    violate("a stream was used that is not there");
    return cudaErrorInvalidResourceHandle;
  }
  if (queue->broken()) return cudaErrorIllegalAddress;
  queue->push(std::move(task));
  return cudaSuccess;
}

cudaError_t FakeGpu::launch_kernel(cudaStream_t stream, std::function<void()> kernel) {
  record("cudaLaunchKernel", stream);
  if (last_error != cudaSuccess) violate("a launch would report the error of an earlier call");
  if (auto const status = take_failure("cudaLaunchKernel"); status != cudaSuccess) return status;
  return enqueue(stream, std::move(kernel));
}

bool FakeGpu::is_capturing(cudaStream_t stream) const {
  auto const queue = queue_of(stream);
  return queue && queue->capture() != nullptr;
}

void FakeGpu::begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  auto const queue = queue_of(stream);
  bool const global = mode == cudaStreamCaptureModeGlobal;
  unsigned long long id = 0;
  {
    std::scoped_lock const lock(mutex_);
    id = ++captures_;
    ++(global ? capturing_ : own_[std::this_thread::get_id()]);
  }
  queue->join(std::make_shared<FakeCapture>(*this, id, global, queue.get()));
}

std::shared_ptr<FakeGpu::Graph const> FakeGpu::end_capture(cudaStream_t stream) {
  auto const capture = queue_of(stream)->capture();
  std::vector<std::shared_ptr<Queue>> queues;
  {
    std::scoped_lock const lock(mutex_);
    --(capture->global ? capturing_ : own_[std::this_thread::get_id()]);
    for (auto const& [handle, queue] : streams_) queues.push_back(queue);
  }
  for (auto const& queue : queues) {
    if (queue->capture() == capture) queue->join(nullptr);
  }
  return capture->is_joined() ? std::make_shared<Graph>(capture->take()) : nullptr;
}

std::shared_ptr<FakeGpu::Graph const> FakeGpu::end_capture(Stream const& stream) {
  auto graph = end_capture(cuda::handle_of(stream));
  if (!graph) violate("a capture ended with work that its first stream does not come after");
  return graph;
}

void FakeGpu::launch(std::shared_ptr<Graph const> const& graph, cudaStream_t stream) {
  queue_of(stream)->push([graph] {
    for (auto const& task : graph->tasks) task();
  });
}

std::set<int> FakeGpu::contexts() const {
  std::scoped_lock const lock(mutex_);
  return contexts_;
}

void FakeGpu::touch(int device) {
  std::scoped_lock const lock(mutex_);
  contexts_.insert(device);
}

std::size_t FakeGpu::live_bytes() const {
  std::scoped_lock const lock(mutex_);
  std::size_t bytes = 0;
  for (auto const& [memory, size] : memory_) bytes += size;
  return bytes;
}

std::size_t FakeGpu::live_streams() const {
  std::scoped_lock const lock(mutex_);
  return streams_.size();
}

std::size_t FakeGpu::live_graphs() const {
  std::scoped_lock const lock(mutex_);
  return graphs_.size();
}

std::size_t FakeGpu::live_events() const {
  std::scoped_lock const lock(mutex_);
  return events_.size();
}

void* FakeGpu::take_memory(std::size_t bytes, std::size_t alignment) {
  auto const size = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, size);
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0xcd, size);
  std::scoped_lock const lock(mutex_);
  memory_[memory] = size;
  return memory;
}

void FakeGpu::return_memory(void* memory) {
  if (memory == nullptr) return;
  std::scoped_lock const lock(mutex_);
  auto const found = memory_.find(memory);
  if (found == memory_.end()) {
    violations_.emplace_back("memory was freed that is not there");
    return;
  }
  std::memset(memory, 0xee, found->second);
  memory_.erase(found);
  std::free(memory);
}

}  // namespace weft::test
