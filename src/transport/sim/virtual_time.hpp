#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <ratio>

namespace weft::sim {

/// Virtual time in whole picoseconds, so that sums do not depend on their order.
using Time = std::chrono::duration<std::int64_t, std::pico>;

inline constexpr Time kNever = Time::max();
inline constexpr Time kLatest = std::chrono::hours(24 * 100);  ///< an event after this makes a simulation fail

/// kNever where a Time cannot hold so many seconds.
[[nodiscard]] inline Time from_seconds(double seconds) noexcept {
  auto const picoseconds = seconds * 1e12;
  return picoseconds < 0x1p63 ? Time(std::llround(picoseconds)) : kNever;
}
/// The sum of two times that are not negative; kNever where a Time cannot hold it.
[[nodiscard]] constexpr Time later(Time at, Time duration) noexcept {
  return duration < kNever - at ? at + duration : kNever;
}
[[nodiscard]] inline double to_seconds(Time time) noexcept {
  return static_cast<double>(time.count()) * 1e-12;
}

}  // namespace weft::sim
