#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace weft {

/// Yields the core for as long as that is cheap. Linux 6.18 charges a whole time slice for a yield: beside
/// programs that compute, who yields runs last and who sleeps runs first. Any thread.
class Yielder {
 public:
  /// False, then for a while without yielding, once the core came back late: the wait should sleep. The while is short
  /// at first, as a peer's own long call delays like another program, and doubles from late yield to late yield.
  [[nodiscard]] bool yield() noexcept {
    if (abstained_.load(std::memory_order_relaxed) > 0) {
      abstained_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    auto const begin = std::chrono::steady_clock::now();
    ::sched_yield();
    bool const late = std::chrono::steady_clock::now() - begin >= kLate;
    int const turns = turns_.load(std::memory_order_relaxed);
    if (!late) {
      if (turns > kFewest) turns_.store(turns - 1, std::memory_order_relaxed);
      return true;
    }
    abstained_.store(turns, std::memory_order_relaxed);
    turns_.store(std::min(2 * turns, kMost), std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr std::chrono::milliseconds kLate{1};
  static constexpr int kFewest = 8;
  static constexpr int kMost = 1024;
  std::atomic<int> abstained_{0};    ///< calls left that do not yield
  std::atomic<int> turns_{kFewest};  ///< how many the next late yield is followed by
};

}  // namespace weft
