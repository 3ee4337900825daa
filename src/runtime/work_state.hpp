#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>

#include "weft/work.hpp"

namespace weft {

/// The completion that Works share. Completed exactly once, by the thread that ran the operation; waiters sleep on a
/// futex. The completing thread holds its own reference until complete() returns.
class Work::State {
 public:
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
};

/// Enqueues `operation` on `stream`; the Work completes when it returns or throws. The operation and what it captured
/// are destroyed before the Work completes, so whoever has waited knows them released.
[[nodiscard]] Work enqueue_work(Stream const& stream, std::function<void()> operation);

}  // namespace weft
