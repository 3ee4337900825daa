#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace weft {

/// Yields the core while waiting, for as long as that is cheap. Linux 6.18 charges a whole time slice for a yield:
/// beside programs that compute, a thread that yields runs last and one that sleeps runs first. Any thread.
class Yielder {
 public:
  /// A yield that takes this long is late: ranks that share a core bring it back sooner, unless they have long calls of
  /// their own to make.
  static constexpr std::chrono::milliseconds kLate{1};
  /// The same limit where `ranks` take turns on `cores`: a core comes back when all its other ranks have had their
  /// turn.
  [[nodiscard]] static constexpr std::chrono::milliseconds late_of(int ranks, int cores) noexcept {
    constexpr int kRanksPerLate = 4;
    return kLate * std::max(1, ranks / std::max(1, cores) / kRanksPerLate);
  }

  /// Yields once. Returns false if the core came back only after `late`: the caller should sleep. It then returns false
  /// for a number of calls without yielding: few at first, as a peer's own long call delays just like another program
  /// does; the number doubles with each late yield.
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
  std::atomic<int> abstained_{0};    ///< so many of the next calls do not yield
  std::atomic<int> turns_{kFewest};  ///< how many calls do not yield after the next late one
};

}  // namespace weft
