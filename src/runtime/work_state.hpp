#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "runtime/stream_impl.hpp"
#include "runtime/timeline.hpp"
#include "weft/work.hpp"

namespace weft {

/// Holds operations back, to launch them together with others.
class WorkLauncher {
 public:
  virtual ~WorkLauncher() = default;
  /// Launches the operation that completes `state`, unless it is launched already; false when it cannot be launched
  /// yet. Called by any thread.
  virtual bool launch(Work::State const& state) noexcept = 0;
};

/// Tells whether a device has finished an operation, which the device does not report to the host by itself. Any thread
/// may ask.
class DeviceCompletion {
 public:
  virtual ~DeviceCompletion() = default;
  /// Whether the operation is finished; asks the device. Never called where is_captured().
  [[nodiscard]] virtual bool reached() const noexcept = 0;
  /// Makes what is enqueued on `stream` from now on start after the operation; false where the stream is not the
  /// device's.
  virtual bool wait_on(Stream const& stream) const = 0;
  /// Whether the operation is part of a graph: then there is nothing that the host could wait for.
  [[nodiscard]] virtual bool is_captured() const noexcept = 0;
  /// After reached(): why the operation failed, as far as the device knows.
  [[nodiscard]] virtual std::exception_ptr error() const noexcept { return nullptr; }
};

/// The completion that copies of a Work share. It is completed exactly once, by the thread that ran the operation;
/// waiters sleep on a futex. The completing thread keeps a reference of its own until complete() returns.
class Work::State {
 public:
  State() = default;
  /// For an operation that `launcher` holds back.
  explicit State(std::weak_ptr<WorkLauncher> launcher) : launcher_(std::move(launcher)), held_back_(true) {}

  /// Makes sure that the operation is launched; false when it cannot be yet. Every waiter calls this first.
  [[nodiscard]] bool demand() const noexcept;
  /// Stamps timings.enqueued; call before the state is shared.
  void enqueue() noexcept { enqueue(now()); }
  /// The same for a caller that knows the time.
  void enqueue(std::chrono::steady_clock::time_point now) noexcept { timings.enqueued = now; }
  /// Stamps timings.started. Called only by the thread that will complete the operation.
  void start() noexcept;
  /// Stamps timings.finished and wakes waiters.
  void complete(std::exception_ptr error = nullptr) noexcept;
  /// The same where several threads may complete the operation: the first one counts.
  void complete_once(std::exception_ptr error = nullptr) noexcept {
    if (!claimed_.exchange(true, std::memory_order_acq_rel)) complete(std::move(error));
  }
  [[nodiscard]] bool done() const noexcept { return word_.load(std::memory_order_acquire) == kDone; }
  /// done(), after asking the device if there is one.
  [[nodiscard]] bool look() noexcept;
  void wait() noexcept;
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds limit) noexcept;

  /// From now on `device` too knows when the operation is complete, besides whoever calls complete_once(). Called once.
  void attach(std::shared_ptr<DeviceCompletion const> device) noexcept;
  /// Null where the host completes the operation.
  [[nodiscard]] DeviceCompletion const* device() const noexcept { return device_.load(std::memory_order_acquire); }

  [[nodiscard]] std::exception_ptr error() const noexcept { return done() ? error_ : nullptr; }

  /// Others may read the timings once done().
  WorkTimings timings{};

 private:
  static constexpr std::uint32_t kPending = 0;
  static constexpr std::uint32_t kPendingWithWaiters = 1;
  static constexpr std::uint32_t kDone = 2;

  /// True when done. Otherwise announces a waiter: without one complete() spares the wake-up call.
  [[nodiscard]] bool done_or_announce_waiter() const noexcept;
  /// True when done, or where a device knows when it is; otherwise announces a waiter.
  [[nodiscard]] bool may_not_sleep() const noexcept;
  [[nodiscard]] bool wait_for_device(std::chrono::steady_clock::time_point deadline) noexcept;

  mutable std::atomic<std::uint32_t> word_{kPending};
  std::exception_ptr error_;
  std::weak_ptr<WorkLauncher> const launcher_{};
  bool const held_back_ = false;
  std::atomic<bool> claimed_{false};
  std::atomic<DeviceCompletion const*> device_{nullptr};
  std::shared_ptr<DeviceCompletion const> device_owner_;
};

/// Like the public enqueue_work(), for an operation that was held back: completes `state`.
void enqueue_work(Stream::Impl& stream, std::function<void()> operation, std::shared_ptr<Work::State> state);

}  // namespace weft
