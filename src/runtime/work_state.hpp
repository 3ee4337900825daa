#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <vector>
#include <mutex>

#include "weft/work.hpp"

namespace weft {

/// The completion that Works share. Completed exactly once, by the thread that ran the operation; waiters sleep on a futex.
class Work::State {
 public:
  void start() noexcept;                                   ///< stamps timings.started
  void complete(std::exception_ptr error = nullptr) noexcept;  ///< stamps timings.finished and wakes waiters
  [[nodiscard]] bool done() const noexcept { return done_.load(std::memory_order_acquire) != 0; }
  void wait() const noexcept;
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds limit) const noexcept;
  [[nodiscard]] std::exception_ptr error() const noexcept { return done() ? error_ : nullptr; }

  WorkTimings timings{};

 private:
  std::atomic<std::uint32_t> done_{0};
  std::exception_ptr error_;
};

/// Enqueues `operation` on `stream`; the Work completes when it returns or throws.
[[nodiscard]] Work enqueue_work(Stream const& stream, std::function<void()> operation);

}  // namespace weft
