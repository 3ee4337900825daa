#include "common/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

#include "weft/error.hpp"

namespace weft::perf {
namespace {

constexpr double kDisturbed = 1.3;
constexpr char const* kBarrier = "WEFT_PERF_BARRIER_US";
constexpr char const* kWork = "WEFT_PERF_WORK_US";
constexpr double kLongest = 1e6;  // microseconds
constexpr double kPatience = 10;  // seconds a run
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr Canary kNone{kInfinite, kInfinite, kInfinite};

Canary worse(Canary a, Canary b) {
  return {std::max(a.copy, b.copy), std::max(a.barrier, b.barrier), std::max(a.work, b.work)};
}

std::optional<double> wanted(char const* variable) {
  char const* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  double const us = std::strtod(text, &end);
  if (*end != '\0' || !(us > 0) || us > kLongest) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}={}: expected microseconds above 0 and up to {}", variable, text, kLongest));
  }
  return us * 1e-6;
}

/// By which factor canaries between `least` and `most` differ from the wanted time, or, without one, from the best.
double distance(double least, double most, std::optional<double> wish, double best) {
  return wish ? std::max(most / *wish, *wish / least) : most / best;
}

}  // namespace

WantedCanary wanted_canary() {
  return {wanted(kBarrier), wanted(kWork)};
}

Canary better(Canary a, Canary b) {
  return {std::min(a.copy, b.copy), std::min(a.barrier, b.barrier), std::min(a.work, b.work)};
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
  Canary best = kNone;
  for (auto const& canary : best_canaries_) best = better(best, canary);
  return best;
}

double SizeRounds::badness(std::size_t round, Quiet const& quiet) const {
  auto const& most = canaries_[round];
  auto const& least = best_canaries_[round];
  return std::max({most.copy / best_canary().copy,
                   distance(least.barrier, most.barrier, quiet.wanted.barrier, quiet.best.barrier),
                   distance(least.work, most.work, quiet.wanted.work, quiet.best.work)});
}

std::vector<std::size_t> SizeRounds::kept_rounds(Quiet const& quiet) const {
  std::vector<std::size_t> result;
  for (std::size_t round = 0; round < canaries_.size(); ++round) {
    if (badness(round, quiet) <= kDisturbed) result.push_back(round);
  }
  return result;
}

std::size_t SizeRounds::kept(Quiet const& quiet) const {
  return kept_rounds(quiet).size();
}

std::vector<std::size_t> SizeRounds::counted_rounds(Quiet const& quiet) const {
  auto rounds = kept_rounds(quiet);
  if (!rounds.empty()) return rounds;
  std::size_t least = 0;
  for (std::size_t round = 1; round < canaries_.size(); ++round) {
    if (badness(round, quiet) < badness(least, quiet)) least = round;
  }
  return {least};
}

Canary SizeRounds::worst_canary(Quiet const& quiet) const {
  Canary worst;
  for (auto const round : counted_rounds(quiet)) worst = worse(worst, canaries_[round]);
  return worst;
}

Canary SizeRounds::least_canary(Quiet const& quiet) const {
  Canary least = kNone;
  for (auto const round : counted_rounds(quiet)) least = better(least, best_canaries_[round]);
  return least;
}

Figures SizeRounds::figures(std::size_t side, Quiet const& quiet) const {
  Sample least{kInfinite, kInfinite, kInfinite, kInfinite};
  for (auto const round : counted_rounds(quiet)) {
    auto const& sample = samples_[side][round];
    least.call_loop = std::min(least.call_loop, sample.call_loop);
    least.call_base = std::min(least.call_base, sample.call_base);
    least.cost_loop = std::min(least.cost_loop, sample.cost_loop);
    least.cost_base = std::min(least.cost_base, sample.cost_base);
  }
  // Differences of minima, so that a disturbed base loop cannot make a figure look better than it is.
  return {least.call_loop - least.call_base, least.cost_loop - least.cost_base, least.call_base, least.cost_base};
}

Quiet run_rounds(std::vector<SizeRounds>& sizes, Stopwatch& watch, int wanted) {
  Quiet quiet{kNone, watch.crowded() ? WantedCanary{} : wanted_canary()};
  auto const enough = static_cast<std::size_t>(wanted);
  double patience = kPatience;
  for (std::size_t round = 0; round < 3 * enough; ++round) {
    bool missing = false;
    for (auto& size : sizes) {
      if (round >= enough && size.kept(quiet) >= enough) continue;
      missing = true;
      if (quiet.wanted.is_anything()) patience -= watch.await(quiet.wanted, kDisturbed, patience);
      size.measure(watch);
      quiet.best = better(quiet.best, size.best_canary());
    }
    if (!missing) break;
  }
  return quiet;
}

}  // namespace weft::perf
