#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace weft::ucx {

/// How long a rank that also computes pauses between two looks at a call of `bytes`, whose chunks come one after the
/// other and take `beta_s` per byte. Data that comes meanwhile waits in the operating system's kernel and is fetched
/// all at once. Without the pause, packets of 16 KiB at 1 Gb/s would take the core from the computation every 130 us.
///
/// The pause is at most a sixteenth of the call's time, since the call may end that much later; at most the time of one
/// chunk, so that the chunks requested ahead never run out; and at most what the kernel has room for. It is zero if
/// that is too short to be worth two thread switches: for small calls, and on networks where a chunk arrives before a
/// thread has gone to sleep.
[[nodiscard]] inline std::chrono::microseconds pause_between_looks(std::size_t bytes, std::size_t chunk_bytes,
                                                                   double beta_s) noexcept {
  constexpr double kShareOfCall = 1.0 / 16;
  constexpr double kShortest = 100e-6;
  constexpr double kLongest = 500e-6;
  constexpr double kMostBytesMeanwhile = 512 << 10;  // at most half of what Linux lets a connection's buffer grow to
  auto const longest = std::min(kLongest, kMostBytesMeanwhile * beta_s);
  auto const pause = std::min(
      {longest, static_cast<double>(bytes) * beta_s * kShareOfCall, static_cast<double>(chunk_bytes) * beta_s});
  return std::chrono::microseconds(pause < kShortest ? 0 : static_cast<long>(pause * 1e6));
}

}  // namespace weft::ucx
