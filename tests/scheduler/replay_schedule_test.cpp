#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gathers.hpp"
#include "harness/sanitizers.hpp"
#include "random_graph.hpp"
#include "weft/error.hpp"
#include "weft/schedule.hpp"

namespace weft {
namespace {

using test::gathers;
using test::random_graph;
using test::unit_cluster;
using test::unless_sanitized;

TEST(ReplaySchedule, TakesNoLongerThanPlannedWithoutDisturbance) {
  std::mt19937 random(14);
  for (int round = 0; round < unless_sanitized(100, 15); ++round) {
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 60});
    CostModel const model(unit_cluster(0.2));
    double const contention = 0.2 * static_cast<double>(round % 2);
    std::int64_t const capacity = serial_peak_bytes(graph, model) + 10;
    for (auto const policy : {SchedulePolicy::weft, SchedulePolicy::prefetch1, SchedulePolicy::random}) {
      auto const schedule =
          plan_schedule(graph, model, {.policy = policy, .capacity = capacity, .contention = contention});
      double const replayed = replay_schedule(graph, model, schedule);
      // Contention: what starts earlier can slow down what was alone before.
      if (contention == 0) {
        EXPECT_LE(replayed, schedule.makespan_s * (1 + 1e-9));
      }
      EXPECT_GE(replayed, schedule.bound.within_memory_s() - 1e-9);
      // Twice the time for everything takes twice the time.
      EXPECT_NEAR(replay_schedule(graph, model, schedule, {.compute = 2, .communication = 2}), 2 * replayed,
                  1e-9 * replayed);
      double const noisy = replay_schedule(graph, model, schedule, {.noise = 0.2, .seed = 5});
      EXPECT_GE(noisy, 0.79 * replayed - schedule.makespan_s * 0.5);
      EXPECT_EQ(noisy, replay_schedule(graph, model, schedule, {.noise = 0.2, .seed = 5}));
    }
  }
}

TEST(ReplaySchedule, AllPlansOfAGraphMeetTheSameNoise) {
  // 20,000 s of computing by 20 operators, whatever is merged; 40 s of sending.
  OpGraph const graph = gathers(20, 4, 1000);
  CostModel const model(unit_cluster());
  auto const apart = plan_schedule(graph, model, {.policy = SchedulePolicy::blocking});
  auto const merged = plan_schedule(
      graph, model, {.policy = SchedulePolicy::settings, .capacity = 10'000, .settings = {.gather_bytes = 12}});
  ASSERT_LT(merged.launches.size(), apart.launches.size());
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Disturbance const noise{.noise = 0.2, .seed = seed};
    EXPECT_NEAR(replay_schedule(graph, model, merged, noise), replay_schedule(graph, model, apart, noise), 1.2 * 40);
  }
}

TEST(ReplaySchedule, WhatIsSentTogetherTakesTheTimesOfItsParts) {
  // 4,000 s of sending by 40 operators, apart or as one; 40 s of computing.
  OpGraph const graph = gathers(40, 100, 1);
  CostModel const model(unit_cluster());
  auto const apart = plan_schedule(graph, model, {.policy = SchedulePolicy::blocking});
  auto const merged = plan_schedule(
      graph, model, {.policy = SchedulePolicy::settings, .capacity = 100'000, .settings = {.gather_bytes = 4000}});
  ASSERT_LT(merged.launches.size(), apart.launches.size() - 30);
  double most = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Disturbance const noise{.noise = 0.2, .seed = seed};
    double const seconds = replay_schedule(graph, model, merged, noise);
    EXPECT_NEAR(seconds, replay_schedule(graph, model, apart, noise), 1.2 * 40);
    most = std::max(most, std::abs(seconds / merged.makespan_s - 1));
  }
  EXPECT_GT(most, 0.01);  // there is noise
}

TEST(ReplaySchedule, WhatIsWrongIsNamed) {
  OpGraph const graph = gathers(2, 8, 1);
  CostModel const model(unit_cluster());
  auto schedule = plan_schedule(graph, model, {.policy = SchedulePolicy::asap});
  EXPECT_THROW(static_cast<void>(replay_schedule(graph, model, schedule, {.compute = -1})), Error);
  EXPECT_THROW(static_cast<void>(replay_schedule(graph, model, schedule, {.noise = 1.5})), Error);
  auto const spoilt = [&](auto const& spoil) {
    auto copy = schedule;
    spoil(copy);
    EXPECT_THROW(static_cast<void>(replay_schedule(graph, model, copy)), Error);
  };
  spoilt([](Schedule& s) { s.launches.pop_back(); });
  spoilt([](Schedule& s) { s.launches.push_back(s.launches.front()); });
  spoilt([](Schedule& s) { std::swap(s.launches.front(), s.launches.back()); });
  spoilt([](Schedule& s) { s.launches.front().ops = {99}; });
  spoilt([](Schedule& s) { s.capacity = 3; });
}

}  // namespace
}  // namespace weft
