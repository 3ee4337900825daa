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
  /// Later than the ranks that share a core bring it back, unless they have long calls of their own to make.
  static constexpr std::chrono::milliseconds kLate{1};
  /// The same where `ranks` take turns on `cores`: a core comes back when all its other ranks have had theirs.
  [[nodiscard]] static constexpr std::chrono::milliseconds late_of(int ranks, int cores) noexcept {
    constexpr int kRanksPerLate = 4;
    return kLate * std::max(1, ranks / std::max(1, cores) / kRanksPerLate);
  }

  /// False, then for a while without yielding, once the core came back after `late`: the wait should sleep. The while
  /// is short at first, as a peer's own long call delays like another program, and doubles from late yield to late
  /// yield.
  [[nodiscard]] bool yield(std::chrono::milliseconds late = kLate) noexcept {
    if (abstained_.load(std::memory_order_relaxed) > 0) {
      abstained_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    auto const begin = std::chrono::steady_clock::now();
    ::sched_yield();
    bool const is_late = std::chrono::steady_clock::now() - begin >= late;
    int const turns = turns_.load(std::memory_order_relaxed);
    if (!is_late) {
      if (turns > kFewest) turns_.store(turns - 1, std::memory_order_relaxed);
      return true;
    }
    abstained_.store(turns, std::memory_order_relaxed);
    turns_.store(std::min(2 * turns, kMost), std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr int kFewest = 8;
  static constexpr int kMost = 1024;
  std::atomic<int> abstained_{0};    ///< calls left that do not yield
  std::atomic<int> turns_{kFewest};  ///< how many the next late yield is followed by
};

}  // namespace weft
