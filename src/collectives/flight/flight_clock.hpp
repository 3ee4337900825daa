#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace weft {

/// Nanoseconds of the steady clock. Small work of the calling thread is timed by the kernel's coarse clock (a tick, 1
/// to 10 ms): a precise one would cost a tenth of the smallest call.
[[nodiscard]] inline std::uint64_t flight_time(std::size_t bytes, bool on_stream) noexcept {
  constexpr std::size_t kPreciseBytes = std::size_t{32} << 10;  // takes so long that a precise clock does not show
  timespec now{};
  ::clock_gettime(on_stream || bytes >= kPreciseBytes ? CLOCK_MONOTONIC : CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

[[nodiscard]] inline std::chrono::steady_clock::time_point to_flight_time(std::uint64_t ns) noexcept {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

}  // namespace weft
