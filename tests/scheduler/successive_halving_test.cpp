#include "scheduler/tune/successive_halving.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "scheduler/tune/median.hpp"

namespace weft::test {
namespace {

/// A candidate's steps: some time, noise of a few percent, now and then one that takes three times as long.
class NoisySteps {
 public:
  NoisySteps(std::vector<double> seconds, double noise, std::uint64_t seed)
      : seconds_(std::move(seconds)), noise_(noise), samples_(seconds_.size()), random_(seed) {}

  /// Makes a visit; the median of all so far.
  double run(Visit const& visit) {
    std::normal_distribution<double> noise(1, noise_);
    for (std::size_t step = 1; step < visit.steps; ++step) {
      bool const outlier = random_() % 10 == 0;
      samples_[visit.candidate].push_back(seconds_[visit.candidate] * noise(random_) * (outlier ? 3 : 1));
    }
    return median(samples_[visit.candidate]);
  }

 private:
  std::vector<double> seconds_;
  double noise_;
  std::vector<std::vector<double>> samples_;
  std::mt19937_64 random_;
};

/// Steps that it says it has spent, after all of it.
std::size_t run_all(SuccessiveHalving& halving, NoisySteps& steps) {
  std::size_t made = 0;
  while (!halving.done()) {
    Visit const visit = halving.visit();
    made += visit.steps;
    halving.report(steps.run(visit), visit.steps);
  }
  EXPECT_EQ(halving.spent(), made);
  return made;
}

TEST(SuccessiveHalving, FindsTheBestWithinTheNoise) {
  std::mt19937_64 random(7);
  std::size_t found = 0;
  constexpr std::size_t kRuns = 500;
  for (std::size_t run = 0; run < kRuns; ++run) {
    std::vector<double> seconds;
    for (std::size_t i = 0; i < 12; ++i) seconds.push_back(0.05 + 0.001 * static_cast<double>(random() % 50));
    NoisySteps steps(seconds, 0.02, run);
    SuccessiveHalving halving(seconds.size(), 300, 0.01);
    ASSERT_EQ(halving.tried(), seconds.size());
    run_all(halving, steps);
    double const best = *std::min_element(seconds.begin(), seconds.end());
    EXPECT_LE(seconds[halving.best()], seconds[0] * 1.03) << "run " << run;  // never much worse than what was set
    if (seconds[halving.best()] <= best * 1.04) ++found;
  }
  EXPECT_GE(found, kRuns * 98 / 100);
}

TEST(SuccessiveHalving, KeepsItsStepsWhateverTheyAre) {
  for (std::size_t candidates = 1; candidates <= 20; ++candidates) {
    for (std::size_t most = 0; most <= 400; most += 1 + most / 7) {
      NoisySteps steps(std::vector<double>(candidates, 1.0), 0.05, most);
      SuccessiveHalving halving(candidates, most, 0.01);
      EXPECT_LE(run_all(halving, steps), most) << candidates << " candidates";
      EXPECT_LE(halving.tried(), candidates);
      EXPECT_TRUE(halving.tried() == 1 || most >= 4);
    }
  }
}

TEST(SuccessiveHalving, TriesAsManyAsThereAreStepsFor) {
  EXPECT_EQ(SuccessiveHalving(9, 3, 0).tried(), 1U);
  EXPECT_TRUE(SuccessiveHalving(9, 3, 0).done());
  EXPECT_EQ(SuccessiveHalving(9, 4, 0).tried(), 2U);  // 2 visits of 2
  EXPECT_EQ(SuccessiveHalving(9, 9, 0).tried(), 2U);
  EXPECT_EQ(SuccessiveHalving(9, 10, 0).tried(), 3U);  // (3 + 2) visits
  EXPECT_EQ(SuccessiveHalving(9, 37, 0).tried(), 8U);
  EXPECT_EQ(SuccessiveHalving(9, 38, 0).tried(), 9U);  // (9 + 5 + 3 + 2) visits
  EXPECT_EQ(SuccessiveHalving(9, 100000, 0).tried(), 9U);
  EXPECT_EQ(SuccessiveHalving(1, 100, 0).tried(), 1U);
}

TEST(SuccessiveHalving, StaysWhereNothingGainsEnough) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    NoisySteps steps({1.0, 0.995, 1.0, 0.993, 1.2}, 1e-4, seed);
    SuccessiveHalving halving(5, 200, 0.01);
    run_all(halving, steps);
    EXPECT_EQ(halving.best(), 0U);
  }
  NoisySteps steps({1.0, 0.995, 1.0, 0.98, 1.2}, 1e-4, 1);
  SuccessiveHalving halving(5, 200, 0.01);
  run_all(halving, steps);
  EXPECT_EQ(halving.best(), 3U);
}

TEST(SuccessiveHalving, LeavesOutWhatCannotBeHad) {
  SuccessiveHalving halving(4, 100, 0.01);
  std::vector<std::size_t> visits(4, 0);
  while (!halving.done()) {
    Visit const visit = halving.visit();
    ++visits[visit.candidate];
    bool const available = visit.candidate != 2;
    halving.report(
        available ? 1.0 - 0.1 * static_cast<double>(visit.candidate) : std::numeric_limits<double>::infinity(),
        available ? visit.steps : 0);
  }
  EXPECT_EQ(visits[2], 1U);
  EXPECT_EQ(halving.best(), 3U);

  SuccessiveHalving none(2, 100, 0.01);
  none.report(1.0, 2);
  none.report(std::numeric_limits<double>::infinity(), 0);
  while (!none.done()) none.report(1.0, none.visit().steps);
  EXPECT_EQ(none.best(), 0U);
}

TEST(SuccessiveHalving, EndsWhenVisitsTookMoreThanPlanned) {
  SuccessiveHalving halving(8, 60, 0.01);
  while (!halving.done()) {
    std::size_t const twice = 2 * halving.visit().steps;
    halving.report(std::nan(""), halving.may_take(twice) ? twice : halving.visit().steps);
  }
  EXPECT_LE(halving.spent(), 60U);
  EXPECT_EQ(halving.best(), 0U);
}

TEST(Median, IsOfTheMiddle) {
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({1, 100, 2}), 2);
  EXPECT_EQ(median({1, 100, 2, 4}), 3);
  EXPECT_TRUE(std::isnan(median({1, std::nan(""), 2})));
}

}  // namespace
}  // namespace weft::test
