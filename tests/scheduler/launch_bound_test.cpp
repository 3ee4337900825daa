#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gathers.hpp"
#include "random_graph.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/bounds.hpp"
#include "scheduler/plan/exhaustive_search.hpp"
#include "weft/error.hpp"
#include "weft/schedule.hpp"
#include "weft/transformer_graph.hpp"

namespace weft {
namespace {

using test::gathers;
using test::random_graph;
using test::unit_cluster;

constexpr std::int64_t kEnough = std::int64_t{1} << 40;

/// Layers whose weights are gathered for forward and used again in backward, or gathered again for it, and each
/// weight's gradient is reduced: 6 operators a layer (7), of lengths by chance.
OpGraph random_step(std::mt19937& random, int layers, bool gathers_again = false) {
  OpGraph graph{.name = "step"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  auto const up_to = [&](std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n)(random); };
  auto const tensor = [&](std::string const& name) { return graph.add(OpTensor{.name = name, .bytes = 1 + up_to(9)}); };
  auto const send = [&](std::string const& name, CollectiveKind kind, std::vector<TensorId> reads, TensorId to) {
    graph.add(OpNode{.name = name,
                     .kind = OpKind::collective,
                     .collective = {kind, up_to(20), world},
                     .reads = std::move(reads),
                     .writes = {to}});
  };
  auto const compute = [&](std::string const& name, std::vector<TensorId> reads, TensorId to) {
    graph.add(OpNode{.name = name, .flops = static_cast<double>(up_to(12)), .reads = std::move(reads), .writes = {to}});
  };
  std::vector<TensorId> weights;
  std::vector<TensorId> inputs{tensor("x")};
  for (int layer = 0; layer < layers; ++layer) {
    std::string const n = std::to_string(layer);
    weights.push_back(tensor("w" + n));
    send("gather" + n, CollectiveKind::all_gather, {}, weights.back());
    TensorId const next = tensor("x" + n);
    compute("forward" + n, {inputs.back(), weights.back()}, next);
    inputs.push_back(next);
  }
  TensorId gradient = inputs.back();
  for (int layer = layers; layer-- > 0;) {
    std::string const n = std::to_string(layer);
    TensorId const of_weight = tensor("dw" + n);
    compute("dw" + n, {gradient, inputs[static_cast<std::size_t>(layer)]}, of_weight);
    send("reduce" + n, CollectiveKind::reduce_scatter, {of_weight}, tensor("reduced" + n));
    if (layer == 0) break;
    TensorId weight = weights[static_cast<std::size_t>(layer)];
    if (gathers_again) {
      weight = tensor("again" + n);
      send("again" + n, CollectiveKind::all_gather, {}, weight);
    }
    TensorId const next = tensor("dx" + n);
    compute("dx" + n, {gradient, weight}, next);
    gradient = next;
  }
  return graph;
}

/// All ways to share `ops` out to launches, those of one kind.
std::vector<std::vector<std::vector<OpId>>> all_launches(OpGraph const& graph) {
  std::vector<std::vector<std::vector<OpId>>> all{{}};
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].kind != OpKind::collective) continue;
    std::vector<std::vector<std::vector<OpId>>> longer;
    for (auto const& some : all) {
      for (std::size_t i = 0; i <= some.size(); ++i) {
        auto const kind = [&](OpId each) { return graph.ops[static_cast<std::size_t>(each)].collective.kind; };
        if (i < some.size() && kind(some[i].front()) != graph.ops[op].collective.kind) continue;
        longer.push_back(some);
        if (i == some.size()) longer.back().emplace_back();
        longer.back()[i].push_back(static_cast<OpId>(op));
      }
    }
    all = std::move(longer);
  }
  for (auto& launches : all) std::erase_if(launches, [](auto const& launch) { return launch.size() < 2; });
  return all;
}

/// Over all ways to merge and all orders; without contention.
double shortest(OpGraph const& graph, CostModel const& model, std::int64_t capacity) {
  double least = std::numeric_limits<double>::infinity();
  for (auto const& launches : all_launches(graph)) {
    try {
      Problem const problem(graph, model, launches);
      auto const found = try_all_orders(problem, {.capacity = capacity, .below_s = least, .most_starts = 50'000'000});
      EXPECT_TRUE(found.complete);
      if (!found.order.empty()) least = std::min(least, found.makespan_s);
    } catch (Error const&) {
      continue;  // a cycle
    }
  }
  return least;
}

TEST(LaunchBound, ComputingWaitsForLargeLaunchesOrManySmallOnes) {
  // Four gathers of 10 s and a latency of 3 s, each used for 10 s. Computing that waits for w in all: launches that end
  // by w, by w + 10 and so on bring 40 s of bytes where w is 22 (19, 26, 33, 40), and never where it is less. So long
  // does the shortest plan wait, that sends each by itself.
  OpGraph const graph = gathers(4, 20, 10);
  CostModel const model(unit_cluster(3));
  auto const bound = lower_bound(Problem(graph, model), 0, kEnough);
  EXPECT_NEAR(bound.launches_s, 22 + 40, 1e-9);
  EXPECT_DOUBLE_EQ(bound.resource_s[static_cast<std::size_t>(Resource::compute)], 13 + 40);
  EXPECT_DOUBLE_EQ(shortest(graph, model, kEnough), 22 + 40);
}

TEST(LaunchBound, ManyLaunchesTakeLongWhereTheLinkIsTheLimit) {
  // Each gather is used for 2 s. One launch takes 43 s, and 8 s are computed after it; two take 46 s, and the second
  // brings at least one gather. 48 s can be reached: three gathers, then one.
  OpGraph const graph = gathers(4, 20, 2);
  CostModel const model(unit_cluster(3));
  EXPECT_NEAR(lower_bound(Problem(graph, model), 0, kEnough).launches_s, 48, 1e-9);
  EXPECT_DOUBLE_EQ(shortest(graph, model, kEnough), 48);
}

TEST(LaunchBound, CountsWhatIsSentBeforeAPlaceThatMemoryDivides) {
  // The four gathers of above; then what they bring is used for 60 s more, while 30 s of sending for an operator after
  // that could be done, if there was room for more than a sixth of it (10 of 60 bytes) beside four shards of 10 bytes,
  // the 20 last gathered and two activations. So 22 + 40 + 60 s pass until then, and 25 more.
  OpGraph graph = gathers(4, 20, 10);
  TensorId const middle = graph.add(OpTensor{.name = "middle", .bytes = 1});
  auto const& use = graph.ops.back();
  OpNode again{.name = "again", .flops = 60, .reads = {use.writes.front(), use.reads.back()}, .writes = {middle}};
  graph.add(std::move(again));
  OpNode last{.name = "last", .flops = 10, .reads = {middle}};
  for (int i = 0; i < 3; ++i) {
    TensorId const weight = graph.add(OpTensor{.name = "v" + std::to_string(i), .bytes = 20});
    graph.add(OpNode{.name = "more" + std::to_string(i),
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_gather, 20, 0},
                     .writes = {weight}});
    last.reads.push_back(weight);
  }
  graph.add(std::move(last));
  CostModel const model(unit_cluster(3));
  EXPECT_NEAR(lower_bound(Problem(graph, model), 0, 40 + 20 + 2 + 10).memory_s, 22 + 40 + 60 + 25, 1e-9);
}

TEST(LaunchBound, IsNoneWithoutLatency) {
  EXPECT_EQ(lower_bound(Problem(gathers(4, 20, 10), CostModel(unit_cluster(0))), 0, kEnough).launches_s, 0);
}

TEST(LaunchBound, NoScheduleOfASmallStepIsShorter) {
  std::mt19937 random(41);
  int highest = 0;
  for (int round = 0; round < 150; ++round) {
    OpGraph const graph = random_step(random, 2 + static_cast<int>(random() % 2));
    CostModel const model(unit_cluster(0.25 * static_cast<double>(1 + random() % 16)));
    Problem const problem(graph, model);
    std::int64_t const capacity = serial_peak_bytes(graph, model) + static_cast<std::int64_t>(random() % 30);
    auto const bound = lower_bound(problem, 0, capacity);
    double const least = shortest(graph, model, capacity);
    EXPECT_LE(bound.within_memory_s(), least * (1 + 1e-9)) << "round " << round;
    EXPECT_LE(bound.launches_s, shortest(graph, model, kEnough) * (1 + 1e-9)) << "round " << round;
    highest += bound.launches_s >= bound.within_memory_s() ? 1 : 0;
  }
  EXPECT_GT(highest, 10) << "of the bounds it is the one that counts, or this says little";
}

TEST(LaunchBound, MemoryKeepsLaunchesSmall) {
  // Llama's step in small, its parameters sharded: where memory is full at the turn from forward to backward, the link
  // waits for what can be freed or reduced, and its launches start small again.
  TransformerShape shape = transformer_preset("llama2-7b");
  shape.layers = 8;
  OpGraph const graph = transformer_graph(
      shape, {.strategy = TrainingStrategy::zero3, .data_ranks = 128, .merged = false, .reduction_bytes = 4});
  CostModel const model(cluster_named("a100-400g"));
  Problem const problem(graph, model);
  std::int64_t const capacity = serial_peak_bytes(graph, model) + 500'000'000;
  auto const bound = lower_bound(problem, 0.1, capacity);
  auto const schedule = plan_schedule(graph, model, {.capacity = capacity, .contention = 0.1});
  EXPECT_GE(schedule.makespan_s, bound.memory_s);
  EXPECT_LE(schedule.makespan_s, 1.03 * bound.memory_s) << "1.048 without counting that";
}

TEST(LaunchBound, NoScheduleInLittleMemoryIsShorter) {
  std::mt19937 random(44);
  int highest = 0;
  for (int round = 0; round < 300; ++round) {
    OpGraph const graph = random_step(random, 2, true);
    CostModel const model(unit_cluster(0.25 * static_cast<double>(1 + random() % 32)));
    Problem const problem(graph, model);
    std::int64_t const capacity = serial_peak_bytes(graph, model) + static_cast<std::int64_t>(random() % 12);
    auto const bound = lower_bound(problem, 0, capacity);
    EXPECT_LE(bound.memory_s, shortest(graph, model, capacity) * (1 + 1e-9)) << "round " << round;
    highest += bound.memory_s > bound.best_s() ? 1 : 0;
  }
  EXPECT_GT(highest, 20) << "of the bounds it is the one that counts, or this says little";
}

TEST(LaunchBound, NoScheduleOfARandomGraphIsShorter) {
  std::mt19937 random(42);
  for (int round = 0; round < 200; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 5, .collectives = 0.5});
    CostModel const model(unit_cluster(0.5 * static_cast<double>(1 + random() % 6)));
    auto const bound = lower_bound(Problem(graph, model), 0, kEnough);
    EXPECT_LE(bound.launches_s, shortest(graph, model, kEnough) * (1 + 1e-9)) << "round " << round;
  }
}

TEST(LaunchBound, NoPlanOfAStepIsShorterUnderContention) {
  std::mt19937 random(43);
  for (int round = 0; round < 60; ++round) {
    OpGraph const graph = random_step(random, 3 + static_cast<int>(random() % 8));
    CostModel const model(unit_cluster(0.25 * static_cast<double>(1 + random() % 16)));
    double const contention = 0.1 * static_cast<double>(random() % 6);
    auto const schedule =
        plan_schedule(graph, model, {.contention = contention, .time_limit = std::chrono::milliseconds(100)});
    EXPECT_GE(schedule.makespan_s, schedule.bound.within_memory_s() * (1 - 1e-9)) << "round " << round;
  }
}

}  // namespace
}  // namespace weft
