#include "weft/memory_planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "order_reference.hpp"
#include "planned_buffers.hpp"
#include "random_graph.hpp"
#include "scheduler/order/least_live.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/order/segments.hpp"
#include "weft/cost_model.hpp"
#include "weft/error.hpp"
#include "weft/transformer_graph.hpp"

namespace weft {
namespace {

using test::OrderReference;
using test::random_graph;

constexpr std::size_t kMostSets = 60'000;

/// Orders alone: whatever placement comes first will do.
TensorPlan plan_order(OpGraph const& graph, OrderPolicy policy = OrderPolicy::weft) {
  return plan_tensors(graph, {.policy = policy, .alignment = 1, .time_limit = std::chrono::milliseconds(0)});
}

/// The order is legal, and takes what it is said to.
void expect_true(OpGraph const& graph, TensorPlan const& plan) {
  auto const live = OrderReference(graph).live(plan.order);
  ASSERT_TRUE(live) << "an operator runs before one that it waits for, twice or never";
  EXPECT_EQ(plan.live, *live);
  EXPECT_EQ(plan.live_bytes, *std::max_element(live->begin(), live->end()));
  EXPECT_LE(plan.bound_bytes, plan.live_bytes);
  EXPECT_EQ(plan.memory.live_bytes, plan.live_bytes);
}

/// Random graphs one behind the other: each begins when all before it has ended, and reads something of it.
OpGraph chain_of(std::mt19937& random, int parts, std::size_t most_ops) {
  OpGraph chain{.name = "chain"};
  TensorId link = chain.add(OpTensor{.name = "begin", .bytes = 3});
  for (int part = 0; part < parts; ++part) {
    OpGraph const graph = random_graph(random, {.ops = 2 + random() % (most_ops - 1)});
    auto const ops = static_cast<OpId>(chain.ops.size());
    auto const tensors = static_cast<TensorId>(chain.tensors.size());
    if (part == 0) chain.groups = graph.groups;
    for (auto tensor : graph.tensors) {
      tensor.name += "of" + std::to_string(part);
      if (tensor.alias_of != kNone) tensor.alias_of += tensors;
      if (tensor.in_place_of != kNone) tensor.in_place_of += tensors;
      chain.add(tensor);
    }
    for (auto op : graph.ops) {
      op.name += "of" + std::to_string(part);
      for (auto& id : op.reads) id += tensors;
      for (auto& id : op.writes) id += tensors;
      for (auto& id : op.after) id += ops;
      if (part > 0) op.after.push_back(ops - 1);
      op.reads.push_back(link);
      chain.add(op);
    }
    OpNode end{.name = "end" + std::to_string(part), .reads = {link}};
    for (OpId op = ops; op < static_cast<OpId>(chain.ops.size()); ++op) end.after.push_back(op);
    link =
        chain.add(OpTensor{.name = "link" + std::to_string(part), .bytes = static_cast<std::int64_t>(random() % 20)});
    end.writes = {link};
    chain.add(end);
  }
  return chain;
}

TEST(MemoryPlanner, FindsTheBestOrderOfUpTo24Operators) {
  std::mt19937 random(31);
  int compared = 0;
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    OpGraph const graph = random_graph(random, {.ops = 2 + random() % 23});
    auto const plan = plan_order(graph);
    expect_true(graph, plan);
    auto const best = OrderReference(graph).best(kMostSets);
    if (!best) continue;
    ++compared;
    ASSERT_EQ(plan.live_bytes, best->peak);
    ASSERT_EQ(plan.bound_bytes, best->peak);
  }
  EXPECT_GE(compared, 990);
}

TEST(MemoryPlanner, FindsTheBestOrderOfLongerGraphsWhoseSegmentsAreSmall) {
  std::mt19937 random(32);
  int compared = 0;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    OpGraph const graph = chain_of(random, 4, 14);
    if (graph.ops.size() <= 24 || graph.ops.size() > 64) continue;
    auto const plan = plan_order(graph);
    expect_true(graph, plan);
    auto const best = OrderReference(graph).best(kMostSets);
    if (!best) continue;
    ++compared;
    ASSERT_EQ(plan.live_bytes, best->peak);
  }
  EXPECT_GE(compared, 150);
}

TEST(MemoryPlanner, IsNeverAboveAnotherPolicyNorBelowItsBound) {
  std::mt19937 random(33);
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    OpGraph const graph = random_graph(random, {.ops = 25 + random() % 150});
    auto const weft = plan_order(graph);
    expect_true(graph, weft);
    for (int policy = 1; policy < kOrderPolicies; ++policy) {
      SCOPED_TRACE(to_string(static_cast<OrderPolicy>(policy)));
      auto const other = plan_order(graph, static_cast<OrderPolicy>(policy));
      expect_true(graph, other);
      EXPECT_LE(weft.live_bytes, other.live_bytes);
      EXPECT_LE(weft.bound_bytes, other.live_bytes);
      EXPECT_LE(other.bound_bytes, weft.live_bytes);
    }
  }
}

TEST(LeastLive, IsWhatTheBestSetOfEarlierOperatorsLeaves) {
  std::mt19937 random(34);
  CostModel const model(test::unit_cluster());
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    OpGraph const graph = random_graph(random, {.ops = 2 + random() % 13});
    OrderReference const reference(graph);
    auto const best = reference.best(kMostSets);
    ASSERT_TRUE(best);
    Problem const problem(graph, model);
    for (std::size_t op = 0; op < graph.ops.size(); ++op) {
      auto const least = least_live(problem, static_cast<TaskId>(op));
      ASSERT_EQ(least.bytes, best->at_least[op]) << "operator " << op;
      // Running that first takes as much as is said.
      std::vector<OpId> order;
      for (TaskId const task : problem.order()) {
        if (least.ran[static_cast<std::size_t>(task)]) order.push_back(task);
      }
      std::size_t const place = order.size();
      order.push_back(static_cast<OpId>(op));
      for (TaskId const task : problem.order()) {
        if (!least.ran[static_cast<std::size_t>(task)] && task != static_cast<TaskId>(op)) order.push_back(task);
      }
      auto const live = reference.live(order);
      ASSERT_TRUE(live);
      EXPECT_EQ((*live)[place], least.bytes);
    }
  }
}

TEST(Segments, EndWhereAnOperatorHasOnePlaceInEveryOrder) {
  std::mt19937 random(35);
  CostModel const model(test::unit_cluster());
  for (int round = 0; round < 300; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 2 + random() % 20, .inputs = 0.1});
    Problem const problem(graph, model);
    std::size_t const count = graph.ops.size();
    // By all paths.
    std::vector<std::vector<bool>> before(count, std::vector<bool>(count, false));
    for (TaskId const task : problem.order()) {
      auto const t = static_cast<std::size_t>(task);
      for (TaskId const earlier : problem.before(task)) {
        auto const e = static_cast<std::size_t>(earlier);
        before[t][e] = true;
        for (std::size_t i = 0; i < count; ++i) before[t][i] = before[t][i] || before[e][i];
      }
    }
    std::size_t next = 0;
    for (auto const segment : segments_of(problem)) {
      EXPECT_EQ(segment.begin, next);
      ASSERT_LT(segment.begin, segment.end);
      next = segment.end;
      for (std::size_t i = segment.begin; i < segment.end; ++i) {
        auto const t = static_cast<std::size_t>(problem.order()[i]);
        bool fixed = true;
        for (std::size_t other = 0; other < count; ++other) {
          fixed = fixed && (other == t || before[t][other] || before[other][t]);
        }
        EXPECT_FALSE(fixed && segment.end - segment.begin > 1) << "operator " << t << " in round " << round;
      }
    }
    EXPECT_EQ(next, count);
  }
}

TEST(MemoryPlanner, OffsetsAreLegalAndCloseToTheLiveBytes) {
  std::mt19937 random(36);
  int close = 0;
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 100});
    auto const plan =
        plan_tensors(graph, {.alignment = round % 2 == 0 ? 1 : 4, .time_limit = std::chrono::milliseconds(200)});
    expect_true(graph, plan);
    test::expect_legal(plan.tensors.buffers, plan.memory);
    close += static_cast<double>(plan.memory.bytes) <= 1.02 * static_cast<double>(plan.live_bytes) ? 1 : 0;
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      auto const buffer = plan.tensors.buffer_of[i];
      if (buffer != kNone) {
        EXPECT_GE(plan.tensors.buffers[static_cast<std::size_t>(buffer)].bytes, graph.tensors[i].bytes);
      }
    }
  }
  EXPECT_GE(close, kRounds / 2);
}

TransformerShape small_model(std::int64_t sequence) {
  return {.name = "small",
          .layers = 6,
          .width = 512,
          .heads = 8,
          .kv_heads = 8,
          .ffn_width = 1536,
          .vocabulary = 1024,
          .sequence = sequence};
}

TEST(MemoryPlanner, UpdatesRunAsSoonAsTheyFreeMemoryUnlessClippingMakesThemWait) {
  TransformerPlan step{.strategy = TrainingStrategy::zero2, .data_ranks = 2};
  auto const updates_before_last_gradient = [&](OpGraph const& graph) {
    auto const plan = plan_tensors(graph);
    auto const last = std::find_if(plan.order.rbegin(), plan.order.rend(), [&](OpId op) {
      auto const& node = graph.ops[static_cast<std::size_t>(op)];
      return node.kind == OpKind::collective && node.collective.kind == CollectiveKind::reduce_scatter;
    });
    EXPECT_NE(last, plan.order.rend());
    return std::count_if(plan.order.begin(), last.base(),
                         [&](OpId op) { return graph.ops[static_cast<std::size_t>(op)].kind == OpKind::update; });
  };
  EXPECT_GT(updates_before_last_gradient(transformer_graph(small_model(64), step)), 3);
  step.clipping = true;
  EXPECT_EQ(updates_before_last_gradient(transformer_graph(small_model(64), step)), 0);
}

TEST(MemoryPlanner, BuffersOfAScheduleLastUntilALaunchStartsAfterTheirEnd) {
  OpGraph graph{.name = "two"};
  TensorId const a = graph.add(OpTensor{.name = "a", .bytes = 10});
  TensorId const b = graph.add(OpTensor{.name = "b", .bytes = 20});
  TensorId const unused = graph.add(OpTensor{.name = "unused", .bytes = 5});
  TensorId const state = graph.add(OpTensor{.name = "state", .bytes = 7, .kept = true});
  graph.add(OpNode{.name = "make", .writes = {a}});
  graph.add(OpNode{.name = "beside", .writes = {b}});
  graph.add(OpNode{.name = "use", .reads = {a}});
  graph.add(OpNode{.name = "last", .reads = {b}});
  Schedule schedule{.launches = {{.ops = {0}, .start_s = 0, .end_s = 1},
                                 {.ops = {1}, .start_s = 0, .end_s = 5},
                                 {.ops = {2}, .start_s = 1, .end_s = 5},
                                 {.ops = {3}, .start_s = 5, .end_s = 6}}};
  auto const found = tensor_buffers(graph, schedule, 16);
  auto const life = [&](TensorId tensor) {
    auto const& buffer =
        found.buffers.at(static_cast<std::size_t>(found.buffer_of.at(static_cast<std::size_t>(tensor))));
    EXPECT_EQ(buffer.alignment, 16);
    return std::pair(buffer.life.begin, buffer.life.end);
  };
  EXPECT_EQ(life(a), std::pair(std::int64_t{0}, std::int64_t{3}));
  EXPECT_EQ(life(b), std::pair(std::int64_t{1}, std::int64_t{4}));
  EXPECT_EQ(life(state), std::pair(std::int64_t{0}, std::int64_t{4}));
  EXPECT_EQ(found.buffer_of.at(static_cast<std::size_t>(unused)), kNone);
  schedule.launches.pop_back();
  EXPECT_THROW(static_cast<void>(tensor_buffers(graph, schedule)), Error);
}

TEST(MemoryPlanner, WhatIsWrongIsRefused) {
  OpGraph graph{.name = "one"};
  graph.add(OpNode{.name = "a"});
  EXPECT_THROW(static_cast<void>(plan_tensors(graph, {.alignment = 0})), Error);
  EXPECT_THROW(static_cast<void>(plan_tensors(graph, {.capacity = -1})), Error);
  EXPECT_THROW(static_cast<void>(tensor_buffers(graph, std::vector<OpId>{})), Error);
  EXPECT_THROW(static_cast<void>(tensor_buffers(graph, std::vector<OpId>{0, 0})), Error);
  EXPECT_THROW(static_cast<void>(tensor_buffers(graph, std::vector<OpId>{1})), Error);
  graph.ops[0].reads = {3};
  EXPECT_THROW(static_cast<void>(plan_tensors(graph)), Error);
}

TEST(MemoryPlanner, AnEmptyGraphTakesWhatItKeeps) {
  OpGraph graph{.name = "empty"};
  EXPECT_EQ(plan_tensors(graph).live_bytes, 0);
  graph.add(OpTensor{.name = "state", .bytes = 7, .kept = true});
  auto const plan = plan_tensors(graph);
  EXPECT_EQ(plan.live_bytes, 7);
  EXPECT_EQ(plan.resident_bytes, 7);
}

}  // namespace
}  // namespace weft
