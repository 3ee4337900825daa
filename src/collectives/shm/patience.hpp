#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>

namespace weft::shm {

/// How a wait passes its time before it sleeps on a futex.
struct Patience {
  int spins = 0;   ///< polls with a pause instruction between them
  int yields = 0;  ///< polls with sched_yield() between them, fewer where other programs want the core
};

/// Yields the core for as long as that is cheap. Linux 6.18 charges a whole time slice for a yield: beside
/// programs that compute, who yields runs last and who sleeps runs first. Any thread.
class Yielder {
 public:
  /// False, then for the next kAbstained calls without yielding, once the core came back late: the wait should sleep.
  [[nodiscard]] bool yield() noexcept {
    if (abstained_.load(std::memory_order_relaxed) > 0) {
      abstained_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    auto const begin = std::chrono::steady_clock::now();
    ::sched_yield();
    if (std::chrono::steady_clock::now() - begin < kLate) return true;
    abstained_.store(kAbstained, std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr std::chrono::milliseconds kLate{1};
  static constexpr int kAbstained = 1000;
  std::atomic<int> abstained_{0};
};

}  // namespace weft::shm
