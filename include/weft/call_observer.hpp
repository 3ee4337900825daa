#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace weft {

/// Sees the collectives that this process enqueues on streams of the host, of all communicators, also those of
/// DataParallel, ZeroOptimizer and FullySharded. Calls that Communicator::fuse() merges are seen as the one call that
/// they become, when it leaves. Not seen are calls without a stream (done when they return), messages, and calls on
/// GPUs.
class CallObserver {
 public:
  /// One call, as it goes on. In the thread that runs it.
  class Call {
   public:
    virtual ~Call() = default;
    virtual void started() noexcept = 0;
    virtual void finished() noexcept = 0;  ///< failed or not
  };

  virtual ~CallObserver() = default;
  /// In the thread that makes the call, as it is about to be enqueued. `operation`: "all_reduce", of a group or of
  /// merged calls its first one's; it stays. `bytes`: of all ranks' parts together where there are parts. Null: of no
  /// interest.
  [[nodiscard]] virtual std::shared_ptr<Call> enqueued(std::string_view operation, std::size_t bytes) = 0;
};

/// From now on `observer` sees every call, until another one takes its place; null: nobody. It must outlive the calls
/// that it has seen. Any thread.
void observe_calls(CallObserver* observer) noexcept;

}  // namespace weft
