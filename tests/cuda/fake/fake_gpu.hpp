#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/cuda_functions.hpp"
#include "weft/cuda.hpp"

namespace weft::test {

/// Something that happens once. Who waits gives up when the fake ends.
class Signal {
 public:
  explicit Signal(std::atomic<bool> const& ending) : ending_(ending) {}
  void set();
  [[nodiscard]] bool is_set() const;
  void wait() const;
  /// No longer than until `given_up`.
  void wait(std::atomic<bool> const& given_up) const;
  [[nodiscard]] std::chrono::steady_clock::time_point when() const;

 private:
  std::atomic<bool> const& ending_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool set_ = false;
  std::chrono::steady_clock::time_point when_{};
};

/// One call of the table.
struct FakeCall {
  std::string name;          ///< "cudaEventRecord", "ncclAllReduce"
  void const* on = nullptr;  ///< the stream, or else event or communicator
  std::size_t bytes = 0;
  int group_depth = 0;
  std::thread::id thread;
};

class FakeCapture;
class FakeGraphMemory;

/// A GPU in host memory: streams run their queues on threads of their own, memory is the host's, kernels' bodies run on
/// the CPU, and every call is recorded. One at a time in a process; tests inject failures and captures. Programs that
/// link `weft_fake_gpu` have it behind all of Weft: it takes the place of the CUDA runtime and of the compiled kernels.
///
/// What a real GPU would leave to luck is an error here: memory that is freed is overwritten, events under capture
/// cannot be asked, streams under capture cannot wait for what was not captured, what a graph allocates it must free,
/// and what other streams did for it must be waited for at its end. A null stream is the current device's,
/// and a launch reports what this thread's calls have left behind as their last error.
class FakeGpu {
 public:
  explicit FakeGpu(int devices = 1);
  ~FakeGpu();
  FakeGpu(FakeGpu const&) = delete;
  FakeGpu& operator=(FakeGpu const&) = delete;

  static FakeGpu& current();
  [[nodiscard]] static cuda::CudaFunctions const& functions();

  // As the functions of weft/cuda.hpp.
  [[nodiscard]] Stream make_stream(bool high_priority = false, int device = 0) const;
  [[nodiscard]] Buffer allocate(std::size_t count, DataType dtype, int device = 0) const;

  // What was called.
  void record(char const* name, void const* on, std::size_t bytes = 0, int group_depth = 0);
  [[nodiscard]] std::vector<FakeCall> calls() const;
  [[nodiscard]] std::size_t count(std::string const& name) const;
  [[nodiscard]] std::size_t count_here(std::string const& name) const;  ///< by this thread
  /// Calls by which this thread waited for the GPU.
  [[nodiscard]] std::size_t host_waits_here() const;
  void forget_calls();
  /// Copies that streams have run, of the kinds of cudaMemcpyAsync.
  [[nodiscard]] std::size_t copies_run() const noexcept { return copies_run_; }
  void note_copy() noexcept { ++copies_run_; }
  /// What no program may do, as it was found; tests expect it to be empty.
  [[nodiscard]] std::vector<std::string> violations() const;
  void violate(std::string const& what);
  /// Of this thread, as cudaSetDevice and cudaGetLastError know them.
  static thread_local int current_device;
  static thread_local cudaError_t last_error;

  // What is to go wrong.
  void fail_next(std::string const& name, cudaError_t error);
  [[nodiscard]] cudaError_t take_failure(std::string const& name);
  /// Nothing that is enqueued on the stream from now on runs, until release().
  void hold(Stream const& stream);
  void release(Stream const& stream);
  /// As where a kernel has written to where it may not: streams that this thread has made do nothing any more, and all
  /// that is asked of them and of events on them fails. At once, or when a copy to the device comes up there.
  void break_streams_here();
  void break_streams_here_at_copy_in() { breaks_at_copy_in_ = std::this_thread::get_id(); }

  // Capture, as cudaStreamBeginCapture and what belongs to it.
  struct Graph {
    std::vector<std::shared_ptr<FakeGraphMemory>> memory;
    std::vector<std::function<void()>> tasks;
  };
  void begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
  void begin_capture(Stream const& stream) { begin_capture(cuda::handle_of(stream), cudaStreamCaptureModeGlobal); }
  /// Null where some of it was not waited for.
  [[nodiscard]] std::shared_ptr<Graph const> end_capture(cudaStream_t stream);
  [[nodiscard]] std::shared_ptr<Graph const> end_capture(Stream const& stream);
  void launch(std::shared_ptr<Graph const> const& graph, cudaStream_t stream);
  void launch(std::shared_ptr<Graph const> const& graph, Stream const& stream) {
    launch(graph, cuda::handle_of(stream));
  }

  // For the functions of the tables.
  class Queue;
  struct Event;
  /// Runs `task` on the stream when its turn comes, or puts it into the graph that is captured.
  cudaError_t enqueue(cudaStream_t stream, std::function<void()> task);
  /// The same of a kernel.
  cudaError_t launch_kernel(cudaStream_t stream, std::function<void()> kernel);
  [[nodiscard]] bool is_capturing(cudaStream_t stream) const;
  /// Devices that something was done on, or that were made current.
  [[nodiscard]] std::set<int> contexts() const;
  void touch(int device);
  [[nodiscard]] std::size_t live_bytes() const;
  [[nodiscard]] std::size_t live_streams() const;
  [[nodiscard]] std::size_t live_events() const;
  [[nodiscard]] std::size_t live_graphs() const;
  [[nodiscard]] void* take_memory(std::size_t bytes, std::size_t alignment = 256);
  void return_memory(void* memory);
  [[nodiscard]] std::atomic<bool> const& ending() const noexcept { return ending_; }

 private:
  friend struct FakeCuda;
  void break_streams_of(std::thread::id maker);
  [[nodiscard]] std::shared_ptr<Queue> queue_of(cudaStream_t stream) const;

  int const devices_;
  std::atomic<bool> ending_{false};
  std::atomic<std::size_t> copies_run_{0};
  std::atomic<std::thread::id> breaks_at_copy_in_{};  // whose streams
  mutable std::mutex mutex_;                          // of all that follows
  std::vector<FakeCall> calls_;
  std::vector<std::string> violations_;
  std::map<std::string, std::deque<cudaError_t>> failures_;
  std::map<cudaStream_t, std::shared_ptr<Queue>> streams_;
  std::vector<std::shared_ptr<Queue>> gone_;  // destroyed, perhaps still running
  std::set<Event*> events_;
  std::map<void*, std::size_t> memory_;
  std::vector<std::shared_ptr<Queue>> defaults_;  // by device
  std::set<int> contexts_;
  unsigned long long captures_ = 0;
  int capturing_ = 0;                               ///< in global mode
  std::map<std::thread::id, int> own_;              ///< in thread-local mode, by thread
  std::set<std::shared_ptr<Graph const>*> graphs_;  ///< of both kinds of handle
};

}  // namespace weft::test
