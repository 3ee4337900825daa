#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>

#include "weft/stream.hpp"

namespace weft {

/// When a piece of work was enqueued, began and ended, on std::chrono::steady_clock (one clock for all processes of a
/// host).
struct WorkTimings {
  std::chrono::steady_clock::time_point enqueued{};
  std::chrono::steady_clock::time_point started{};
  std::chrono::steady_clock::time_point finished{};
};

/// Completion of an asynchronous operation. That of an operation on a device's stream is in the order of that stream:
/// wait_on() makes another stream of the device wait, and the host is not involved; wait() and test() ask the device.
/// One that became part of a CUDA graph is complete for the host at once. Its times are the host's: of when it was
/// seen to have begun and ended.
///
/// Copies share the completion; a default Work is already complete, and costs
/// neither allocation nor atomics (what inline calls return). Every member may be called from any thread.
class Work {
 public:
  Work() = default;

  /// True once complete, whether it succeeded or failed.
  [[nodiscard]] bool test() const noexcept;
  /// Blocks until complete; rethrows the operation's Error. May be called repeatedly.
  void wait() const;
  /// Like wait() but gives up after `limit`: false when it is still running.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds limit) const;
  /// Work enqueued on `stream` from now on starts only after this. Does not block the caller.
  void wait_on(Stream const& stream) const;
  /// The failure, or null while running or on success.
  [[nodiscard]] std::exception_ptr error() const noexcept;
  /// The same as far as the host knows, without asking a device: also where that is not allowed, as during a capture.
  [[nodiscard]] std::exception_ptr known_error() const noexcept;
  /// Meaningful once complete; all zero for inline work, which is not timed.
  [[nodiscard]] WorkTimings timings() const noexcept;

  class State;  ///< runtime/work_state.hpp
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

/// Enqueues `operation` on `stream`; the Work completes when it returns or throws. The operation and what it captured
/// are destroyed before the Work completes, so whoever has waited knows them released.
[[nodiscard]] Work enqueue_work(Stream const& stream, std::function<void()> operation);

}  // namespace weft
