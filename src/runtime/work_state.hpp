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

/// Whoever holds an operation back, to launch it with others.
class WorkLauncher {
 public:
  virtual ~WorkLauncher() = default;
  /// Launches the operation that completes `state`, unless it is launched; false when it cannot be yet. Any thread.
  virtual bool launch(Work::State const& state) noexcept = 0;
};

/// How a device tells that it is through with an operation, of which the host is not told by itself. Any thread.
class DeviceCompletion {
 public:
  virtual ~DeviceCompletion() = default;
  /// Whether it is; asks the device. Never where is_captured().
  [[nodiscard]] virtual bool reached() const noexcept = 0;
  /// What comes on `stream` from now on starts only after it; false where the stream is none of the device's.
  virtual bool wait_on(Stream const& stream) const = 0;
  /// The operation is part of a graph: for the host there is nothing to wait for.
  [[nodiscard]] virtual bool is_captured() const noexcept = 0;
  /// Once reached(): why it failed, as far as the device knows.
  [[nodiscard]] virtual std::exception_ptr error() const noexcept { return nullptr; }
};

/// The completion that Works share. Completed exactly once, by the thread that ran the operation; waiters sleep on a
/// futex. The completing thread holds its own reference until complete() returns.
class Work::State {
 public:
  State() = default;
  /// Of an operation that is held back.
  explicit State(std::weak_ptr<WorkLauncher> launcher) : launcher_(std::move(launcher)), held_back_(true) {}

  /// Makes sure that the operation is launched; false when it cannot be yet. Whoever waits calls this first.
  [[nodiscard]] bool demand() const noexcept;
  /// Stamps timings.enqueued; call before the state is shared.
  void enqueue() noexcept { enqueue(now()); }
  /// The same of one that knows the time.
  void enqueue(std::chrono::steady_clock::time_point now) noexcept { timings.enqueued = now; }
  /// Stamps timings.started; only the thread that will complete it.
  void start() noexcept;
  /// Stamps timings.finished and wakes waiters.
  void complete(std::exception_ptr error = nullptr) noexcept;
  /// The same where several may find out; the first one counts.
  void complete_once(std::exception_ptr error = nullptr) noexcept {
    if (!claimed_.exchange(true, std::memory_order_acq_rel)) complete(std::move(error));
  }
  [[nodiscard]] bool done() const noexcept { return word_.load(std::memory_order_acquire) == kDone; }
  /// done(), after a look at the device.
  [[nodiscard]] bool look() noexcept;
  void wait() noexcept;
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds limit) noexcept;

  /// From now on `device` knows when the operation is complete, besides whoever calls complete_once(). Once.
  void attach(std::shared_ptr<DeviceCompletion const> device) noexcept;
  /// Null where the host completes the operation.
  [[nodiscard]] DeviceCompletion const* device() const noexcept { return device_.load(std::memory_order_acquire); }

  [[nodiscard]] std::exception_ptr error() const noexcept { return done() ? error_ : nullptr; }

  /// Others may read it once done().
  WorkTimings timings{};

 private:
  static constexpr std::uint32_t kPending = 0;
  static constexpr std::uint32_t kPendingWithWaiters = 1;
  static constexpr std::uint32_t kDone = 2;

  /// True when done; otherwise announces a waiter, without whom complete() spares the wake-up call.
  [[nodiscard]] bool done_or_announce_waiter() const noexcept;
  [[nodiscard]] bool wait_for_device(std::chrono::steady_clock::time_point deadline) noexcept;

  mutable std::atomic<std::uint32_t> word_{kPending};
  std::exception_ptr error_;
  std::weak_ptr<WorkLauncher> const launcher_{};
  bool const held_back_ = false;
  std::atomic<bool> claimed_{false};
  std::atomic<DeviceCompletion const*> device_{nullptr};
  std::shared_ptr<DeviceCompletion const> device_owner_;
};

/// As the public enqueue_work(), for an operation that was held back: completes `state`.
void enqueue_work(Stream::Impl& stream, std::function<void()> operation, std::shared_ptr<Work::State> state);

}  // namespace weft
