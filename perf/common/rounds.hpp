#pragma once

#include <cstddef>
#include <vector>

#include "common/measure.hpp"

namespace weft::perf {

/// One side's figures over the kept rounds, in seconds.
struct Figures {
  double call = 0;
  double cost = 0;
};

/// One message size: its sides, measured in turn in every round.
class SizeRounds {
 public:
  SizeRounds(std::size_t bytes, std::vector<Side> sides)
      : bytes_(bytes), sides_(std::move(sides)), samples_(sides_.size()) {}

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::vector<Side> const& sides() const noexcept { return sides_; }

  void warm_up(Stopwatch& watch, int iterations);
  /// Measures every side once, a canary before, between and after; the side that begins changes with the round.
  void measure(Stopwatch& watch);

  /// The best canaries seen here (infinite before the first round).
  [[nodiscard]] Canary best_canary() const;
  /// Rounds whose canaries are within 1.3 × `best`.
  [[nodiscard]] std::size_t kept(Canary best) const;
  [[nodiscard]] std::size_t measured() const noexcept { return canaries_.size(); }
  /// Side `side`'s best over the counted rounds.
  [[nodiscard]] Figures figures(std::size_t side, Canary best) const;
  /// The worst and the best canaries of the rounds that figures() are of: far from one another where these were
  /// disturbed or moved between cores.
  [[nodiscard]] Canary worst_canary(Canary best) const;
  [[nodiscard]] Canary least_canary(Canary best) const;

 private:
  [[nodiscard]] std::vector<std::size_t> kept_rounds(Canary best) const;
  /// The kept rounds, or the least disturbed one when none is kept.
  [[nodiscard]] std::vector<std::size_t> counted_rounds(Canary best) const;

  std::size_t bytes_;
  std::vector<Side> sides_;
  std::vector<std::vector<Sample>> samples_;  // [side][round]
  std::vector<Canary> canaries_;              // [round], the worst of the round
  std::vector<Canary> best_canaries_;         // [round], the best of the round
};

/// The better of two canaries, each figure for itself.
[[nodiscard]] Canary better(Canary a, Canary b);

/// Measures `sizes` until each has `wanted` undisturbed rounds, at most three times as many in all. A round visits
/// every size before the next begins, so that a disturbance of seconds meets different sizes in different rounds.
/// @returns the best canaries of the whole run, which decide what is kept.
Canary run_rounds(std::vector<SizeRounds>& sizes, Stopwatch& watch, int wanted);

}  // namespace weft::perf
