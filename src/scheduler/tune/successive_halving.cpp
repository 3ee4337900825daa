#include "scheduler/tune/successive_halving.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft {
namespace {

constexpr std::size_t kLeastVisit = 2;  // one step that does not count, and one that does
constexpr std::size_t kVisit = 4;       // steps of a visit, where there are enough
constexpr std::size_t kMostTurns = 4;   // visits to a candidate in a round

// How many challengers are left after a round of so many.
std::size_t half(std::size_t challengers) {
  return challengers > 1 ? (challengers + 1) / 2 : 0;
}

std::size_t rounds_of(std::size_t challengers) {
  return challengers == 0 ? 0 : 1 + rounds_of(half(challengers));
}

// The least steps of a round that says anything; the second function includes all rounds that follow.
std::size_t least_of_round(std::size_t challengers) {
  return (challengers + 1) * kLeastVisit;
}
std::size_t least_steps(std::size_t challengers) {
  return challengers == 0 ? 0 : least_of_round(challengers) + least_steps(half(challengers));
}

}  // namespace

SuccessiveHalving::SuccessiveHalving(std::size_t candidates, std::size_t most_steps, double least_gain)
    : most_steps_(most_steps), least_gain_(least_gain) {
  while (candidates > 1 && least_steps(candidates - 1) > most_steps) --candidates;
  costs_.assign(candidates, std::nan(""));
  for (std::size_t candidate = 1; candidate < candidates; ++candidate) challengers_.push_back(candidate);
  plan_round();
}

void SuccessiveHalving::plan_round() {
  visits_.clear();
  next_visit_ = 0;
  std::size_t const challengers = challengers_.size();
  std::size_t const left = most_steps_ - std::min(spent_, most_steps_);
  if (challengers == 0 || left < least_steps(challengers)) return;
  std::size_t const share =
      std::clamp(left / rounds_of(challengers), least_of_round(challengers), left - least_steps(half(challengers)));
  std::size_t const each = share / (challengers + 1);
  std::size_t const turns = std::clamp<std::size_t>(each / kVisit, 1, kMostTurns);
  for (std::size_t turn = 0; turn < turns; ++turn) {
    visits_.push_back({0, std::min(each, kVisit)});
    for (std::size_t const candidate : challengers_) visits_.push_back({candidate, std::min(each, kVisit)});
  }
}

void SuccessiveHalving::report(double cost, std::size_t steps) {
  std::size_t const candidate = visit().candidate;
  costs_[candidate] = cost;
  spent_ += steps;
  ++next_visit_;
  if (std::isinf(cost)) {  // it cannot be set, and is not tried again
    std::erase(challengers_, candidate);
    visits_.erase(std::remove_if(visits_.begin() + static_cast<std::ptrdiff_t>(next_visit_), visits_.end(),
                                 [candidate](Visit const& later) { return later.candidate == candidate; }),
                  visits_.end());
  }
  if (next_visit_ == visits_.size()) {
    end_round();
  } else if (!may_take(visit().steps)) {  // other visits took more steps than planned
    next_visit_ = visits_.size();
  }
}

void SuccessiveHalving::end_round() {
  auto const known = [this](std::size_t candidate) {
    return std::isnan(costs_[candidate]) ? std::numeric_limits<double>::infinity() : costs_[candidate];
  };
  std::stable_sort(challengers_.begin(), challengers_.end(),
                   [&](std::size_t a, std::size_t b) { return known(a) < known(b); });
  if (challengers_.size() <= 1) return;
  challengers_.resize(half(challengers_.size()));
  plan_round();
}

std::size_t SuccessiveHalving::best() const noexcept {
  std::size_t best = 0;
  for (std::size_t const candidate : challengers_) {
    bool const gains = costs_[candidate] < (1 - least_gain_) * costs_[0];
    if (gains && (best == 0 || costs_[candidate] < costs_[best])) best = candidate;
  }
  return best;
}

}  // namespace weft
