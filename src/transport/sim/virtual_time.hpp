#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <ratio>

namespace weft::sim {

/// Virtual time, whole picoseconds: sums do not depend on their order. Lasts for 100 days.
using Time = std::chrono::duration<std::int64_t, std::pico>;

inline constexpr Time kNever = Time::max();

[[nodiscard]] inline Time from_seconds(double seconds) noexcept {
  return Time(std::llround(seconds * 1e12));
}
[[nodiscard]] inline double to_seconds(Time time) noexcept {
  return static_cast<double>(time.count()) * 1e-12;
}

}  // namespace weft::sim
