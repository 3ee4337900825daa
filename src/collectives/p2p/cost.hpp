#pragma once

#include <bit>
#include <cmath>
#include <cstddef>

namespace weft::p2p {

/// About what a message over TCP takes of a processor. Among many ranks this, not the link, limits an algorithm that
/// sends something to all others at once.
inline constexpr double kMessageSeconds = 2e-6;

/// What a cost formula is asked about. The model: each rank has one way out and one way in to a network without
/// contention. A message of B bytes takes α + B·β, of which it occupies its sender's way out for B·β. Combining B bytes
/// takes B·γ.
struct CostQuestion {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  double gamma_s_per_byte = 0;
  int ranks = 1;
  double bytes = 0;        ///< of one rank's part, or of the whole buffer where there are no parts
  double chunk_bytes = 1;  ///< of pipelines
  double message_s = 0;    ///< of a processor, for each of messages that are under way at once; no network has any

  /// ⌈log2 n⌉ and ⌊log2 n⌋
  [[nodiscard]] int ceil_log() const noexcept { return std::bit_width(static_cast<unsigned>(ranks - 1)); }
  [[nodiscard]] int floor_log() const noexcept { return std::bit_width(static_cast<unsigned>(ranks)) - 1; }
  [[nodiscard]] bool is_power_of_two() const noexcept { return std::has_single_bit(static_cast<unsigned>(ranks)); }
  [[nodiscard]] double n() const noexcept { return ranks; }
  /// What a message of `moved` bytes takes, and what combining them takes.
  [[nodiscard]] double message(double moved) const noexcept { return alpha_s + moved * beta_s_per_byte; }
  [[nodiscard]] double combining(double moved) const noexcept { return moved * gamma_s_per_byte; }
  /// Number of chunks that `moved` bytes are divided into.
  [[nodiscard]] double chunks(double moved) const noexcept {
    return std::fmax(1, std::ceil(moved / std::fmin(chunk_bytes, std::fmax(moved, 1))));
  }
};

}  // namespace weft::p2p
