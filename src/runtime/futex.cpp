#include "runtime/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "runtime/timeline.hpp"

namespace weft {

void futex_wait(std::atomic<std::uint32_t> const& word, std::uint32_t expected,
                std::optional<std::chrono::steady_clock::time_point> deadline) noexcept {
  if (auto* const timeline = Timeline::current()) {
    if (word.load() != expected) return;
    return timeline->wait(&word, deadline.value_or(Timeline::TimePoint::max()));
  }
  timespec until{};
  if (deadline) {
    auto const ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline->time_since_epoch()).count();
    if (ns <= 0) return;
    until.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    until.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  }
  // WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC, the clock behind steady_clock. All results (woken, value
  // changed, interrupted, timed out) mean the same to the caller: look again.
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, deadline ? &until : nullptr, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(std::atomic<std::uint32_t> const& word) noexcept {
  if (auto* const timeline = Timeline::current()) return timeline->wake(&word);
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weft
