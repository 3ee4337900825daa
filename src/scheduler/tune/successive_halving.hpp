#pragma once

#include <cstddef>
#include <vector>

namespace weft {

/// Steps in a row with one candidate.
struct Visit {
  std::size_t candidate = 0;
  std::size_t steps = 0;  ///< the first one does not count: memory is touched for the first time, links are idle
};

/// Decides which candidate is tried next, for how long, and which is best (Jamieson, Talwalkar: Non-stochastic Best Arm
/// Identification and Hyperparameter Optimization, 2016). Candidate 0 is what was set before: it is visited in every
/// round, as the measure of the others. Of these the better half stays, until one is left.
///
/// Each round gets an equal share of the steps that are left, and each candidate of a round an equal share of those.
/// Where there are enough steps, candidates take turns in several visits, so that drift hits all alike. The class knows
/// neither ranks nor clocks and depends on nothing but its arguments: ranks that report the same decide alike.
class SuccessiveHalving {
 public:
  /// Of `candidates`, as many of the first ones take part as `most_steps` are enough for. `least_gain`: another
  /// candidate must be faster than candidate 0 by this share of its time to be best().
  SuccessiveHalving(std::size_t candidates, std::size_t most_steps, double least_gain);

  /// The visit to make now. Only while not done().
  [[nodiscard]] Visit const& visit() const noexcept { return visits_[next_visit_]; }
  /// The present visit is over. `cost`: the candidate's cost from all its visits so far; infinite if it cannot be set,
  /// NaN if the cost is not known. `steps`: those that the visit took, which may be more or fewer than planned.
  void report(double cost, std::size_t steps);
  [[nodiscard]] bool done() const noexcept { return next_visit_ == visits_.size(); }
  /// Whether the present visit may take so many steps.
  [[nodiscard]] bool may_take(std::size_t steps) const noexcept { return spent_ + steps <= most_steps_; }

  /// The cheapest so far of the candidates that came through the last round.
  [[nodiscard]] std::size_t best() const noexcept;
  /// The candidate's cost; NaN if it was never tried.
  [[nodiscard]] double cost(std::size_t candidate) const noexcept { return costs_[candidate]; }
  /// How many candidates take part, candidate 0 among them; 0 or 1 where there are too few steps to compare any.
  [[nodiscard]] std::size_t tried() const noexcept { return costs_.size(); }
  [[nodiscard]] std::size_t spent() const noexcept { return spent_; }

 private:
  void plan_round();
  void end_round();

  std::size_t most_steps_;
  double least_gain_;
  std::size_t spent_ = 0;
  std::vector<double> costs_;             ///< by candidate
  std::vector<std::size_t> challengers_;  ///< of this round
  std::vector<Visit> visits_;             ///< of this round
  std::size_t next_visit_ = 0;
};

}  // namespace weft
