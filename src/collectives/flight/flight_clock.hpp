#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace weft {

/// Whether work on so many elements, as a call counts them, is timed by the precise clock. Small work on the calling
/// thread is timed by the kernel's coarse clock (ticks of 1 to 10 ms): reading the precise one would take a tenth of
/// the smallest call's time.
[[nodiscard]] inline bool is_timed_precisely(std::size_t elements, bool on_stream) noexcept {
  constexpr std::size_t kPrecise = std::size_t{8} << 10;  // calls of this size take so long that its cost does not show
  return on_stream || elements >= kPrecise;
}

/// Nanoseconds of the steady clock.
[[nodiscard]] inline std::uint64_t flight_time(bool precisely) noexcept {
  timespec now;  // NOLINT(cppcoreguidelines-pro-type-member-init): written next
  ::clock_gettime(precisely ? CLOCK_MONOTONIC : CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

[[nodiscard]] inline std::uint64_t flight_time(std::size_t elements, bool on_stream) noexcept {
  return flight_time(is_timed_precisely(elements, on_stream));
}

[[nodiscard]] inline std::chrono::steady_clock::time_point to_flight_time(std::uint64_t ns) noexcept {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

}  // namespace weft
