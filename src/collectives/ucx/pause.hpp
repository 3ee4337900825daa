#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace weft::ucx {

/// How long a rank that computes looks away from a call of `bytes` whose chunks come one after the other, each byte in
/// `beta_s`. What comes meanwhile waits in the kernel and is fetched at once: at 1 Gb/s packets of 16 KiB would
/// otherwise take the core from the computation every 130 us.
///
/// At most a sixteenth of what the call takes, by which it may end later; what a chunk takes, as several are asked for
/// ahead and none of them is to be missing; and what the kernel has room for. Zero where that is less than two changes
/// of threads are worth: small calls, and networks on which a chunk is there before anybody has gone to sleep.
[[nodiscard]] inline std::chrono::microseconds pause_between_looks(std::size_t bytes, std::size_t chunk_bytes,
                                                                   double beta_s) noexcept {
  constexpr double kShareOfCall = 1.0 / 16;
  constexpr double kShortest = 100e-6;
  constexpr double kLongest = 500e-6;
  constexpr double kMostBytesMeanwhile = 512 << 10;  // half of what Linux lets a connection's buffer grow to, or less
  auto const longest = std::min(kLongest, kMostBytesMeanwhile * beta_s);
  auto const pause = std::min(
      {longest, static_cast<double>(bytes) * beta_s * kShareOfCall, static_cast<double>(chunk_bytes) * beta_s});
  return std::chrono::microseconds(pause < kShortest ? 0 : static_cast<long>(pause * 1e6));
}

}  // namespace weft::ucx
