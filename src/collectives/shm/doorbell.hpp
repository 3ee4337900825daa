#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace weft::shm {

/// How long a wait sleeps between two examinations of a peer. The first nap is short because its wake-up may be missed,
/// see Channel::wake_sleepers().
inline constexpr auto kFirstNap = std::chrono::milliseconds(1);
inline constexpr auto kNap = std::chrono::milliseconds(20);

/// Sleeps until `bell`, a word of memory that processes share, is rung, at most for `nap` (less than a second). May
/// return early, and does at once if the word is no longer `rung`.
inline void sleep_until_rung(std::atomic<std::uint32_t>& bell, std::uint32_t rung,
                             std::chrono::nanoseconds nap) noexcept {
  timespec const limit{0, nap.count()};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&bell), FUTEX_WAIT, rung, &limit, nullptr, 0);
}

/// Changes the word and wakes all that sleep on it.
inline void ring_bell(std::atomic<std::uint32_t>& bell) noexcept {
  bell.fetch_add(1);
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&bell), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weft::shm
