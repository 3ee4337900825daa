#include "scheduler/plan/loosened_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "harness/sanitizers.hpp"
#include "random_graph.hpp"
#include "scheduler/graph/at.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/plan_maker.hpp"
#include "scheduler/plan/replay_tasks.hpp"

namespace weft {
namespace {

using test::random_graph;
using test::unit_cluster;
using test::unless_sanitized;

constexpr double kAnyTime = std::numeric_limits<double>::infinity();

double replayed(PlanMaker const& planner, Plan const& plan, Disturbance const& disturbance) {
  return replay_tasks(*plan.problem, plan.run.started, planner.capacity(), planner.contention(), disturbance);
}

/// Three weights, gathered in 4 s each; of nine operators of 10 s the first, the fourth and the last use one.
OpGraph early_gathers() {
  OpGraph graph{.name = "early"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  TensorId activation = graph.add(OpTensor{.name = "x", .bytes = 1});
  std::vector<TensorId> weights;
  for (int i = 0; i < 3; ++i) {
    auto const name = std::to_string(i);
    TensorId const shard = graph.add(OpTensor{.name = "s" + name, .bytes = 4, .kept = true});
    weights.push_back(graph.add(OpTensor{.name = "w" + name, .bytes = 8}));
    graph.add(OpNode{.name = "gather" + name,
                     .kind = OpKind::collective,
                     .collective = {CollectiveKind::all_gather, 8, world},
                     .reads = {shard},
                     .writes = {weights.back()}});
  }
  for (int i = 0; i < 9; ++i) {
    TensorId const next = graph.add(OpTensor{.name = "x" + std::to_string(i), .bytes = 1});
    OpNode op{.name = "op" + std::to_string(i), .flops = 10, .reads = {activation}, .writes = {next}};
    if (i == 0 || i == 3 || i == 8) op.reads.push_back(weights[i == 0 ? 0 : i == 3 ? 1 : 2]);
    graph.add(op);
    activation = next;
  }
  return graph;
}

TEST(LoosenedOrder, ComputingDoesNotWaitForALateLinkThatItDoesNotNeed) {
  OpGraph const graph = early_gathers();
  CostModel const model(unit_cluster());
  PlanMaker const planner(graph, model, 1000, 0);
  Plan const tight = planner.run(planner.draft({}));
  Plan const loose = planner.loosened(planner.run(planner.draft({})), kAnyTime);
  ASSERT_DOUBLE_EQ(tight.run.makespan_s, 94);
  EXPECT_DOUBLE_EQ(loose.run.makespan_s, 94);
  // Three times slower, the third gather starts at 24 s. The second operator, which could start at 22 s, stands behind
  // it.
  Disturbance const slow_links{.communication = 3};
  EXPECT_DOUBLE_EQ(replayed(planner, tight, slow_links), 104);
  EXPECT_DOUBLE_EQ(replayed(planner, loose, slow_links), 102);
}

TEST(LoosenedOrder, IsAPlanAsShortWithinTheMemory) {
  std::mt19937 random(61);
  int changed = 0;
  for (int round = 0; round < unless_sanitized(400, 40); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 60, .inputs = 0.5});
    CostModel const model(unit_cluster(0.2));
    double const contention = 0.2 * static_cast<double>(round % 2);
    PlanMaker const planner(graph, model, serial_peak_bytes(graph, model) + 20, contention);
    Plan const tight = planner.run(planner.draft({.gather_bytes = 8, .reduce_bytes = 8}));
    Plan const loose = planner.loosened(planner.run(planner.draft({.gather_bytes = 8, .reduce_bytes = 8})), kAnyTime);
    EXPECT_LE(loose.run.makespan_s, tight.run.makespan_s * (1 + 1e-9));
    EXPECT_LE(loose.run.peak_bytes, planner.capacity());
    EXPECT_LE(serial_peak(*loose.problem, loose.run.started), planner.capacity());
    ASSERT_TRUE(std::is_permutation(loose.run.started.begin(), loose.run.started.end(), tight.run.started.begin(),
                                    tight.run.started.end()));
    for (TaskId const task : loose.run.started) {
      for (TaskId const earlier : loose.problem->before(task)) {
        EXPECT_LE(loose.run.tasks[at(earlier)].end_s, loose.run.tasks[at(task)].start_s + 1e-9);
      }
    }
    EXPECT_LE(planner.loosened(planner.run(planner.draft({})), 0).run.makespan_s,
              planner.run(planner.draft({})).run.makespan_s);
    if (loose.run.started != tight.run.started) ++changed;
  }
  EXPECT_GT(changed, unless_sanitized(100, 10));
}

}  // namespace
}  // namespace weft
