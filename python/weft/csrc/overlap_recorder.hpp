#pragma once

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/call_observer.hpp"
#include "weft/messenger.hpp"
#include "weft/overlap.hpp"
#include "weft/stream.hpp"
#include "weft/trace.hpp"

namespace weft::torch_backend {

/// A thread's CPU clock at some time. Between two samples the thread computed as long as its CPU clock advanced.
struct ThreadSample {
  TimePoint at{};
  clockid_t clock{};
  std::chrono::nanoseconds cpu{};
};

/// One recorded collective or message.
struct RecordedCall {
  char const* name = "";  ///< "all_reduce"
  std::size_t bytes = 0;
  bool on_caller = false;  ///< the calling thread ran it, and did nothing else meanwhile
  ThreadSample ready;      ///< the call was made
  ThreadSample started;
  ThreadSample finished;
};

/// A time in which a thread waited for messages; CPU time used meanwhile is polling.
struct RecordedWait {
  ThreadSample from;
  ThreadSample to;
};

/// One training step: the time between two steps of the optimizer.
struct StepReport {
  std::vector<std::string> names;  ///< of the report's buckets: each collective is one
  OverlapReport report;
  Interval step;
  std::vector<Interval> compute;
  std::vector<BucketTiming> calls;
};

/// Records a process's collectives and messages while it is on: those of process groups by a Watch, those of Weft's own
/// wrappers as their CallObserver. A call's time is exposed while the thread that made the call did not run, because it
/// waited for the result or had lost its core to the communication. Any thread.
class OverlapRecorder final : public CallObserver {
 public:
  static constexpr std::size_t kMostCalls = 200'000;  ///< only the latest calls are kept

  /// Forgets what was recorded, and records from now on; leaves out what is under way now.
  void start();
  [[nodiscard]] bool is_on() const noexcept { return on_.load(std::memory_order_relaxed); }

  /// The calling thread has ended a training step.
  void end_step();
  /// The steps recorded so far. What follows the last end_step() counts as a step if anything was communicated.
  [[nodiscard]] std::vector<StepReport> steps() const;
  /// The same as intervals named "step N: …".
  [[nodiscard]] Trace trace() const;

  [[nodiscard]] std::shared_ptr<CallObserver::Call> enqueued(std::string_view operation, std::size_t bytes) override;

  /// Records one call from its construction on, if the recorder is on. While it lives, everything that its thread
  /// enqueues is part of this call.
  class Watch {
   public:
    /// `stream`: where the call is about to be enqueued; none: it runs on this thread.
    Watch(OverlapRecorder& recorder, char const* name, at::TensorList inputs, at::TensorList results,
          std::optional<Stream> const& stream);
    ~Watch();
    Watch(Watch const&) = delete;
    Watch& operator=(Watch const&) = delete;
    /// The call has been enqueued, or is done.
    void issued();
    /// The call is a message, which has been started.
    void issued(Messenger::Request const& request);

   private:
    OverlapRecorder& recorder_;
    std::optional<Stream> stream_;
    std::shared_ptr<RecordedCall> call_;
  };

  /// While it lives, the calling thread waits for messages.
  class Wait {
   public:
    explicit Wait(OverlapRecorder& recorder);
    ~Wait();
    Wait(Wait const&) = delete;
    Wait& operator=(Wait const&) = delete;

   private:
    OverlapRecorder& recorder_;
    std::optional<ThreadSample> from_;
  };

 private:
  struct Run {
    std::vector<RecordedCall> calls;
    std::vector<RecordedWait> waits;
    std::vector<ThreadSample> ends;
  };

  class Observed;

  void add(RecordedCall const& call);
  [[nodiscard]] Run run() const;

  std::atomic<bool> on_{false};
  mutable std::mutex mutex_;
  std::chrono::steady_clock::time_point began_{};
  std::deque<RecordedCall> calls_;
  std::deque<RecordedWait> waits_;
  std::deque<ThreadSample> ends_;  // of steps
};

/// This process's recorder.
[[nodiscard]] OverlapRecorder& overlap_recorder();

}  // namespace weft::torch_backend
