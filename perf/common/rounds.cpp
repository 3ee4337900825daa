#include "common/rounds.hpp"

#include <algorithm>
#include <limits>

namespace weft::perf {
namespace {

constexpr double kDisturbed = 1.3;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

Canary worse(Canary a, Canary b) {
  return {std::max(a.copy, b.copy), std::max(a.barrier, b.barrier)};
}

double badness(Canary canary, Canary best) {
  return std::max(canary.copy / best.copy, canary.barrier / best.barrier);
}

}  // namespace

Canary better(Canary a, Canary b) {
  return {std::min(a.copy, b.copy), std::min(a.barrier, b.barrier)};
}

void SizeRounds::warm_up(Stopwatch& watch, int iterations) {
  for (auto const& side : sides_) watch.warm_up(side, iterations);
}

void SizeRounds::measure(Stopwatch& watch) {
  auto worst = watch.canary();
  auto best = worst;
  for (std::size_t i = 0; i < sides_.size(); ++i) {
    auto const side = (i + measured()) % sides_.size();
    samples_[side].push_back(watch.measure(sides_[side], bytes_));
    auto const canary = watch.canary();
    worst = worse(worst, canary);
    best = better(best, canary);
  }
  canaries_.push_back(worst);
  best_canaries_.push_back(best);
}

Canary SizeRounds::best_canary() const {
  Canary best{kInfinite, kInfinite};
  for (auto const& canary : best_canaries_) best = better(best, canary);
  return best;
}

std::vector<std::size_t> SizeRounds::kept_rounds(Canary best) const {
  std::vector<std::size_t> result;
  for (std::size_t round = 0; round < canaries_.size(); ++round) {
    if (badness(canaries_[round], best) <= kDisturbed) result.push_back(round);
  }
  return result;
}

std::size_t SizeRounds::kept(Canary best) const {
  return kept_rounds(best).size();
}

std::vector<std::size_t> SizeRounds::counted_rounds(Canary best) const {
  auto rounds = kept_rounds(best);
  if (!rounds.empty()) return rounds;
  auto const least = std::min_element(canaries_.begin(), canaries_.end(),
                                      [&](Canary a, Canary b) { return badness(a, best) < badness(b, best); });
  return {static_cast<std::size_t>(least - canaries_.begin())};
}

Canary SizeRounds::worst_canary(Canary best) const {
  Canary worst;
  for (auto const round : counted_rounds(best)) worst = worse(worst, canaries_[round]);
  return worst;
}

Canary SizeRounds::least_canary(Canary best) const {
  Canary least{kInfinite, kInfinite};
  for (auto const round : counted_rounds(best)) least = better(least, best_canaries_[round]);
  return least;
}

Figures SizeRounds::figures(std::size_t side, Canary best) const {
  Sample least{kInfinite, kInfinite, kInfinite, kInfinite};
  for (auto const round : counted_rounds(best)) {
    auto const& sample = samples_[side][round];
    least.call_loop = std::min(least.call_loop, sample.call_loop);
    least.call_base = std::min(least.call_base, sample.call_base);
    least.cost_loop = std::min(least.cost_loop, sample.cost_loop);
    least.cost_base = std::min(least.cost_base, sample.cost_base);
  }
  // Differences of minima: a disturbed base loop can make no figure look better than it is.
  return {least.call_loop - least.call_base, least.cost_loop - least.cost_base};
}

Canary run_rounds(std::vector<SizeRounds>& sizes, Stopwatch& watch, int wanted) {
  Canary best{kInfinite, kInfinite};
  auto const enough = static_cast<std::size_t>(wanted);
  for (std::size_t round = 0; round < 3 * enough; ++round) {
    bool missing = false;
    for (auto& size : sizes) {
      if (round >= enough && size.kept(best) >= enough) continue;
      missing = true;
      size.measure(watch);
      best = better(best, size.best_canary());
    }
    if (!missing) break;
  }
  return best;
}

}  // namespace weft::perf
