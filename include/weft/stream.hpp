#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/device.hpp"

namespace weft {

/// How a CPU stream's worker thread is placed.
struct StreamOptions {
  std::string name = "weft-stream";  ///< thread name, first 15 characters
  std::optional<int> cpu{};          ///< logical CPU to bind to; absent: inherits the creating thread's binding
  /// How long the worker sleeps on once it has nothing to do or others have helped: who enqueues meanwhile need not
  /// wake it, and what is enqueued waits that long unless somebody helps.
  std::chrono::nanoseconds linger{};
};

/// An in-order queue of work on a device. Copies share one queue; the queue drains and ends with its last copy.
///
/// A CPU stream is one worker thread that sleeps on a futex while idle (timer slack 1 ns). A CUDA stream owns or wraps
/// a cudaStream_t (see weft/cuda.hpp). Every member may be called from any thread; tasks enqueued by one thread run in
/// that order.
class Stream {
 public:
  /// Starts a worker thread. @throws Error{system} when no thread can be started or bound.
  [[nodiscard]] static Stream cpu(StreamOptions const& options = {});

  /// Runs `task` after everything enqueued before it. Tasks must not throw: report through a Work.
  /// @throws Error{unsupported} while the stream is recorded for a CUDA graph.
  void enqueue(std::function<void()> task);

  /// Blocks until everything enqueued so far has run. Must not be called from a task of this stream.
  void synchronize();

  /// Runs tasks on the calling thread, in order, until `enough()` or there is none left to begin, once the one that
  /// another thread is running has ended. Returns at once where the worker does not linger. For whoever would only
  /// wait. `enough` must not use the stream.
  void help_until(std::function<bool()> const& enough);

  [[nodiscard]] Device device() const noexcept;
  [[nodiscard]] bool operator==(Stream const&) const = default;

  class Impl;  ///< the seam implemented per device
  explicit Stream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  [[nodiscard]] Impl& impl() const noexcept { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace weft
