#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "common/measure.hpp"

namespace weft::perf {

/// One side's figures over the kept rounds, in seconds.
struct Figures {
  double call = 0;
  double cost = 0;
  double call_base = 0;  ///< time of the same loops without calls, which was subtracted
  double cost_base = 0;
};

/// What the canaries of rounds are compared with, besides the best copy of their size. A round counts if all its
/// canaries are within 1.3 × of both. The copy is compared per size because its time depends on what a size leaves in
/// the caches.
struct Quiet {
  Canary best;          ///< the best canaries of the run
  WantedCanary wanted;  ///< used instead where set: then shorter is as wrong as longer
};

/// One message size: its sides, measured in turn in every round.
class SizeRounds {
 public:
  SizeRounds(std::size_t bytes, std::vector<Side> sides)
      : bytes_(bytes), sides_(std::move(sides)), samples_(sides_.size()) {}

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::vector<Side> const& sides() const noexcept { return sides_; }

  void warm_up(Stopwatch& watch, int iterations);
  /// Measures every side once, with a canary before, between and after; each round begins with another side.
  void measure(Stopwatch& watch);

  /// The best canaries seen here (infinite before the first round).
  [[nodiscard]] Canary best_canary() const;
  /// How many rounds count.
  [[nodiscard]] std::size_t kept(Quiet const& quiet) const;
  [[nodiscard]] std::size_t measured() const noexcept { return canaries_.size(); }
  /// Side `side`'s best over the counted rounds.
  [[nodiscard]] Figures figures(std::size_t side, Quiet const& quiet) const;
  /// The worst and the best canaries of the rounds that figures() uses. They are far apart if these rounds were
  /// disturbed or moved between cores.
  [[nodiscard]] Canary worst_canary(Quiet const& quiet) const;
  [[nodiscard]] Canary least_canary(Quiet const& quiet) const;

 private:
  [[nodiscard]] double badness(std::size_t round, Quiet const& quiet) const;
  [[nodiscard]] std::vector<std::size_t> kept_rounds(Quiet const& quiet) const;
  /// The kept rounds, or the least disturbed one when none is kept.
  [[nodiscard]] std::vector<std::size_t> counted_rounds(Quiet const& quiet) const;

  std::size_t bytes_;
  std::vector<Side> sides_;
  std::vector<std::vector<Sample>> samples_;  // [side][round]
  std::vector<Canary> canaries_;              // [round], the worst of the round
  std::vector<Canary> best_canaries_;         // [round], the best of the round
};

/// The better of two canaries, each figure for itself.
[[nodiscard]] Canary better(Canary a, Canary b);

/// How long the canaries `barrier` and `work` should take: the environment variables WEFT_PERF_BARRIER_US and
/// WEFT_PERF_WORK_US, in microseconds. @throws Error{invalid_argument} if one is not a positive number.
[[nodiscard]] WantedCanary wanted_canary();

/// Measures `sizes` until each has `wanted` undisturbed rounds, at most three times as many in all. A round visits
/// every size before the next begins, so that a disturbance of seconds meets different sizes in different rounds.
///
/// A virtual machine's cores may be moved closer together or farther apart at any time, and a neighbour may start to
/// work on their other hardware threads. If wanted_canary() is set, each round first makes canaries until they take
/// that long, for up to about ten seconds per run. Cores that work together are placed close together after a while;
/// sleeping ones are not. If ranks take turns on the cores, a barrier says nothing about that, so nothing is waited
/// for.
/// @returns what decides which rounds count.
/// @throws Error{invalid_argument} as wanted_canary() does.
Quiet run_rounds(std::vector<SizeRounds>& sizes, Stopwatch& watch, int wanted);

}  // namespace weft::perf
