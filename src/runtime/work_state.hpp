#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "runtime/stream_impl.hpp"
#include "weft/work.hpp"

namespace weft {

/// Whoever holds an operation back, to launch it with others.
class WorkLauncher {
 public:
  virtual ~WorkLauncher() = default;
  /// Launches the operation that completes `state`, unless it is launched; false when it cannot be yet. Any thread.
  virtual bool launch(Work::State const& state) noexcept = 0;
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
  void enqueue() noexcept;
  /// Stamps timings.started; only the thread that will complete it.
  void start() noexcept;
  /// Stamps timings.finished and wakes waiters.
  void complete(std::exception_ptr error = nullptr) noexcept;
  [[nodiscard]] bool done() const noexcept { return word_.load(std::memory_order_acquire) == kDone; }
  void wait() const noexcept;
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds limit) const noexcept;
  [[nodiscard]] std::exception_ptr error() const noexcept { return done() ? error_ : nullptr; }

  /// Others may read it once done().
  WorkTimings timings{};

 private:
  static constexpr std::uint32_t kPending = 0;
  static constexpr std::uint32_t kPendingWithWaiters = 1;
  static constexpr std::uint32_t kDone = 2;

  /// True when done; otherwise announces a waiter, without whom complete() spares the wake-up call.
  [[nodiscard]] bool done_or_announce_waiter() const noexcept;

  mutable std::atomic<std::uint32_t> word_{kPending};
  std::exception_ptr error_;
  std::weak_ptr<WorkLauncher> const launcher_{};
  bool const held_back_ = false;
};

/// As the public enqueue_work(), for an operation that was held back: completes `state`.
void enqueue_work(Stream::Impl& stream, std::function<void()> operation, std::shared_ptr<Work::State> state);

}  // namespace weft
