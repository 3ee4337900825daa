#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>

#include "gathers.hpp"
#include "random_graph.hpp"
#include "scheduler/plan/bounds.hpp"
#include "scheduler/plan/exhaustive_search.hpp"
#include "scheduler/plan/problem.hpp"
#include "scheduler/plan/serial_order.hpp"
#include "weft/schedule.hpp"

namespace weft {
namespace {

using test::gathers;
using test::random_graph;
using test::unit_cluster;

TEST(Bounds, PreemptiveScheduleOfOneMachine) {
  // J. Carlier's example (1982): the best schedule takes 50; jobs 2 to 4 alone need 11 + 17 + 21.
  EXPECT_DOUBLE_EQ(
      preemptive_bound({{10, 5, 7}, {13, 6, 26}, {11, 7, 24}, {20, 4, 21}, {30, 3, 8}, {0, 6, 17}, {30, 2, 0}}), 49);
  EXPECT_DOUBLE_EQ(preemptive_bound({}), 0);
  EXPECT_DOUBLE_EQ(preemptive_bound({{0, 3, 0}, {0, 4, 0}}), 7);
  EXPECT_DOUBLE_EQ(preemptive_bound({{0, 3, 10}, {5, 4, 0}}), 13);
}

TEST(Bounds, WhatDoesNotFitCannotBeSentEarly) {
  // Two operators that compute for 10 s each; the second one's weights (30 s of sending, 60 bytes) could be sent while
  // the first computes, if there was memory for more than a third of them.
  OpGraph graph{.name = "two"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  TensorId const middle = graph.add(OpTensor{.name = "middle", .bytes = 0});
  graph.add(OpNode{.name = "first", .flops = 10, .writes = {middle}});
  OpNode second{.name = "second", .flops = 10, .reads = {middle}};
  for (int i = 0; i < 3; ++i) {
    TensorId const weight = graph.add(OpTensor{.name = "w" + std::to_string(i), .bytes = 20});
    graph.add(OpNode{.name = "gather" + std::to_string(i),
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_gather, 20, world},
                     .writes = {weight}});
    second.reads.push_back(weight);
  }
  graph.add(second);
  CostModel const model(unit_cluster());
  // With room for all: 30 s of sending, then 10 s of computing. The bound leaves out that the second operator waits.
  EXPECT_DOUBLE_EQ(lower_bound(Problem(graph, model), 0, 60).memory_s, 10 + 20);
  // With room for five sixths as much: 25 s early at most, which no longer bounds more; for one sixth: 5 s early.
  EXPECT_DOUBLE_EQ(lower_bound(Problem(graph, model), 0, 10).memory_s, 10 + 25);
}

TEST(Bounds, LatencyCountsOncePerSetThatCouldBeMerged) {
  OpGraph const graph = gathers(10, 20, 1);
  CostModel const model(unit_cluster(3));
  // Ten gathers of 10 s each that nothing keeps apart: one step; then the last use.
  EXPECT_DOUBLE_EQ(
      lower_bound(Problem(graph, model), 0, 1 << 30).resource_s[static_cast<std::size_t>(Resource::between_hosts)],
      3 + 100 + 1);
}

TEST(Bounds, OneSendingIsNotBothHeadAndTail) {
  // a, which is sent, then b: 1 + 10 + 1 s, nothing of which overlaps.
  OpGraph graph{.name = "chain"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  OpId const a = graph.add(OpNode{.name = "a", .flops = 1});
  OpId const sent = graph.add(OpNode{
      .name = "sent", .kind = OpKind::collective, .collective = {CollectiveKind::all_gather, 20, world}, .after = {a}});
  graph.add(OpNode{.name = "b", .flops = 1, .after = {sent}});
  EXPECT_DOUBLE_EQ(lower_bound(Problem(graph, CostModel(unit_cluster())), 0.2, 1 << 30).best_s(), 12);
}

TEST(Bounds, NoPlanIsFasterUnderContention) {
  std::mt19937 random(23);
  CostModel const model(unit_cluster(0.5));
  for (int round = 0; round < 400; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 3 + random() % 12, .collectives = 0.4});
    double const contention = 0.1 * static_cast<double>(1 + random() % 5);
    for (auto const policy : {SchedulePolicy::asap, SchedulePolicy::weft}) {
      auto const schedule = plan_schedule(
          graph, model, {.policy = policy, .contention = contention, .time_limit = std::chrono::milliseconds(20)});
      EXPECT_GE(schedule.makespan_s, schedule.bound.best_s() * (1 - 1e-9)) << "round " << round;
    }
  }
}

TEST(ExhaustiveSearch, WaitsForMemoryWhereThatIsShorter) {
  // Two gathers of 10 bytes and 5 s each, each used for 6 s; memory for one and a half: the second has to wait until
  // the first was used, though the link is idle.
  OpGraph graph{.name = "two"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  for (int i = 0; i < 2; ++i) {
    TensorId const weight = graph.add(OpTensor{.name = "w" + std::to_string(i), .bytes = 10});
    graph.add(OpNode{.name = "gather" + std::to_string(i),
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_gather, 10, world},
                     .writes = {weight}});
    graph.add(OpNode{.name = "use" + std::to_string(i), .flops = 6, .reads = {weight}});
  }
  CostModel const model(unit_cluster());
  Problem const problem(graph, model);
  EXPECT_DOUBLE_EQ(shortest_makespan(problem, 15).value(), 5 + 6 + 5 + 6);
  EXPECT_DOUBLE_EQ(shortest_makespan(problem, 20).value(), 5 + 6 + 6);
  EXPECT_FALSE(shortest_makespan(problem, 9));
  EXPECT_FALSE(shortest_makespan(problem, 20, 2));
}

TEST(Schedule, IsNearTheShortestOfAllOnSmallGraphs) {
  std::mt19937 random(15);
  double ratios = 0;
  int graphs = 0;
  int shortest_found = 0;
  for (int round = 0; round < 200; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 6, .collectives = 0.4});
    CostModel const model(unit_cluster());  // without latency nothing is gained by merging
    Problem const problem(graph, model);
    std::int64_t const capacity =
        serial_peak(problem, low_memory_order(problem)) + static_cast<std::int64_t>(random() % 20);
    auto const shortest = shortest_makespan(problem, capacity);
    if (!shortest) continue;
    auto const schedule = plan_schedule(graph, model, {.capacity = capacity});
    EXPECT_GE(schedule.makespan_s, *shortest * (1 - 1e-9)) << "round " << round;
    EXPECT_LE(schedule.bound.within_memory_s(), *shortest * (1 + 1e-9)) << "round " << round;
    ratios += *shortest > 0 ? schedule.makespan_s / *shortest : 1;
    shortest_found += schedule.makespan_s <= *shortest * (1 + 1e-9) ? 1 : 0;
    ++graphs;
  }
  EXPECT_GT(graphs, 150);
  EXPECT_LT(ratios / graphs, 1.05);
  EXPECT_GT(shortest_found, graphs / 2);
  RecordProperty("mean_ratio", std::to_string(ratios / graphs));
}

}  // namespace
}  // namespace weft
