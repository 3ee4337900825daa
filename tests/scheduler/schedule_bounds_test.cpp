#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gathers.hpp"
#include "random_graph.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/bounds.hpp"
#include "scheduler/plan/exhaustive_search.hpp"
#include "scheduler/plan/policies.hpp"
#include "scheduler/plan/run_tasks.hpp"
#include "weft/error.hpp"
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
  // Two operators that compute for 20 and 10 s; the second one's weights (30 s of sending, 60 bytes) could be sent
  // while the first computes, if there was memory for more than a third of them.
  OpGraph graph{.name = "two"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  TensorId const middle = graph.add(OpTensor{.name = "middle", .bytes = 0});
  graph.add(OpNode{.name = "first", .flops = 20, .writes = {middle}});
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
  // With room for all: 30 s of sending, then 10 s of computing.
  EXPECT_DOUBLE_EQ(lower_bound(Problem(graph, model), 0, 60).memory_s, 30 + 10);
  // With room for one sixth as much: 5 s early. The bound leaves out that the second operator waits for the rest.
  EXPECT_DOUBLE_EQ(lower_bound(Problem(graph, model), 0, 10).memory_s, 20 + 25);
}

TEST(Bounds, OneLinkBringsAllThatIsNeeded) {
  // Two gathers of 10 s for the first operator, which computes for 1 s; one of 10 s for the second, for 2 s. Paths say
  // 10 + 1 + 2 s, and what is sent in all 30 + 2.
  OpGraph graph{.name = "two"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  auto const gather = [&](std::string const& name) {
    TensorId const weight = graph.add(OpTensor{.name = name, .bytes = 20});
    graph.add(OpNode{.name = name + ".gather",
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_gather, 20, world},
                     .writes = {weight}});
    return weight;
  };
  TensorId const middle = graph.add(OpTensor{.name = "middle", .bytes = 1});
  graph.add(OpNode{.name = "first", .flops = 1, .reads = {gather("a"), gather("b")}, .writes = {middle}});
  graph.add(OpNode{.name = "second", .flops = 2, .reads = {gather("c"), middle}});
  CostModel const model(unit_cluster());
  auto const bound = lower_bound(Problem(graph, model), 0, 1 << 30);
  EXPECT_DOUBLE_EQ(bound.resource_s[static_cast<std::size_t>(Resource::compute)], 30 + 2);
  // While the third gather is sent the first operator runs, slowed: 1.2 s of it.
  auto const slowed = lower_bound(Problem(graph, model), 0.2, 1 << 30);
  EXPECT_DOUBLE_EQ(slowed.contention_s, (30 - 1.2) + 3 + 0.2);
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
  EXPECT_DOUBLE_EQ(try_all_orders(problem, {.capacity = 15}).makespan_s, 5 + 6 + 5 + 6);
  EXPECT_DOUBLE_EQ(try_all_orders(problem, {.capacity = 20}).makespan_s, 5 + 6 + 6);
  EXPECT_TRUE(try_all_orders(problem, {.capacity = 20, .below_s = 5 + 6 + 6}).order.empty());
  EXPECT_TRUE(try_all_orders(problem, {.capacity = 9}).order.empty());
  EXPECT_TRUE(try_all_orders(problem, {.capacity = 9}).complete);
  EXPECT_FALSE(try_all_orders(problem, {.capacity = 20, .most_starts = 2}).complete);
}

/// All ways to give each of `ops` one of the launches before it or a new one; those of one member are left out.
std::vector<std::vector<std::vector<OpId>>> all_partitions(std::vector<OpId> const& ops) {
  std::vector<std::vector<std::vector<OpId>>> all{{}};
  for (OpId const op : ops) {
    std::vector<std::vector<std::vector<OpId>>> longer;
    for (auto const& some : all) {
      for (std::size_t i = 0; i <= some.size(); ++i) {
        longer.push_back(some);
        if (i == some.size()) longer.back().emplace_back();
        longer.back()[i].push_back(op);
      }
    }
    all = std::move(longer);
  }
  for (auto& partition : all) std::erase_if(partition, [](auto const& launch) { return launch.size() < 2; });
  return all;
}

/// The least that run_tasks() takes over all ways to merge and all orders, one by one.
double shortest_of_all(OpGraph const& graph, CostModel const& model, std::int64_t capacity) {
  std::vector<OpId> collectives;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].kind == OpKind::collective) collectives.push_back(static_cast<OpId>(i));
  }
  double shortest = std::numeric_limits<double>::infinity();
  for (auto const& launches : all_partitions(collectives)) {
    bool const alike = std::all_of(launches.begin(), launches.end(), [&](auto const& launch) {
      return std::all_of(launch.begin(), launch.end(), [&](OpId op) {
        auto const& one = graph.ops[static_cast<std::size_t>(op)].collective;
        auto const& first = graph.ops[static_cast<std::size_t>(launch.front())].collective;
        return one.kind == first.kind && one.group == first.group;
      });
    });
    if (!alike) continue;
    std::optional<Problem> problem;
    try {
      problem.emplace(graph, model, launches);
    } catch (Error const&) {
      continue;  // a cycle
    }
    std::vector<TaskId> order(problem->tasks().size());
    std::iota(order.begin(), order.end(), 0);
    do {
      std::vector<bool> there(order.size(), false);
      bool can_run = true;
      for (TaskId const task : order) {
        for (TaskId const earlier : problem->before(task))
          can_run = can_run && there[static_cast<std::size_t>(earlier)];
        there[static_cast<std::size_t>(task)] = true;
      }
      if (!can_run || serial_peak(*problem, order) > capacity) continue;
      auto const run = run_tasks(
          *problem, {.serial = order, .urgency = urgency_by_order(order), .capacity = capacity, .in_order = true});
      shortest = std::min(shortest, run.makespan_s);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  return shortest;
}

TEST(ExhaustiveSearch, PlansOfFewOperatorsAreTheShortestOfAll) {
  std::mt19937 random(31);
  int improvable = 0;
  int merged = 0;
  for (int round = 0; round < 60; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 4 + random() % 3, .collectives = 0.7});
    CostModel const model(unit_cluster(static_cast<double>(random() % 3)));
    std::int64_t const capacity = serial_peak_bytes(graph, model) + static_cast<std::int64_t>(random() % 40);
    auto const schedule = plan_schedule(graph, model, {.capacity = capacity});
    double const shortest = shortest_of_all(graph, model, capacity);
    EXPECT_TRUE(schedule.shortest) << "round " << round;
    EXPECT_NEAR(schedule.makespan_s, shortest, 1e-9 * shortest) << "round " << round;
    EXPECT_LE(schedule.peak_bytes, capacity) << "round " << round;
    improvable += shortest > schedule.bound.within_memory_s() * (1 + 1e-6) ? 1 : 0;
    merged += schedule.launches.size() < graph.ops.size() ? 1 : 0;
  }
  EXPECT_GT(improvable, 10);  // the bound alone does not say so
  EXPECT_GT(merged, 3);
}

TEST(ExhaustiveSearch, SaysWhereItCannotTell) {
  std::mt19937 random(32);
  CostModel const model(unit_cluster());
  int certain = 0;
  for (int round = 0; round < 20; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 24, .collectives = 0.4});
    auto const schedule = plan_schedule(graph, model);
    bool const at_bound = schedule.makespan_s <= schedule.bound.within_memory_s() * (1 + 1e-9);
    EXPECT_EQ(schedule.shortest, at_bound) << "round " << round;
    certain += at_bound ? 1 : 0;
    EXPECT_FALSE(plan_schedule(graph, model, {.policy = SchedulePolicy::blocking}).shortest);
  }
  EXPECT_LT(certain, 20);
}

TEST(Schedule, IsTheShortestOfAllOnSmallGraphs) {
  std::mt19937 random(15);
  for (int round = 0; round < 100; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 8, .collectives = 0.4});
    CostModel const model(unit_cluster(0.5));
    std::int64_t const capacity = serial_peak_bytes(graph, model) + static_cast<std::int64_t>(random() % 20);
    auto const schedule = plan_schedule(graph, model, {.capacity = capacity});
    EXPECT_TRUE(schedule.shortest) << "round " << round;
    EXPECT_LE(schedule.bound.within_memory_s(), schedule.makespan_s * (1 + 1e-9)) << "round " << round;
    EXPECT_LE(replay_schedule(graph, model, schedule), schedule.makespan_s * (1 + 1e-9)) << "round " << round;
  }
}

}  // namespace
}  // namespace weft
