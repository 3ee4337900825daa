#include "scheduler/plan/policies.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gathers.hpp"
#include "random_graph.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/order/serial_order.hpp"
#include "weft/schedule.hpp"

namespace weft {
namespace {

using test::gathers;
using test::unit_cluster;

TEST(RaisedGates, StandWhereThePeakOfTheOrderStays) {
  // Each gather makes 20 bytes that the operator behind it uses; the last of these makes 61 more.
  OpGraph graph = gathers(4, 20, 1);
  TensorId const large = graph.add(OpTensor{.name = "large", .bytes = 61});
  graph.ops[7].writes.push_back(large);
  CostModel const model(unit_cluster());
  Problem const problem(graph, model);
  std::vector<TaskId> const serial = problem.order();
  ASSERT_EQ(serial, (std::vector<TaskId>{0, 1, 2, 3, 4, 5, 6, 7}));
  auto const gates = raised_gates(problem, serial);
  // While the last operator runs, 20 + 61 bytes are live, so that four weights fit at any time before: every gather can
  // start at once.
  for (TaskId const gather : {0, 2, 4, 6}) EXPECT_EQ(gates[static_cast<std::size_t>(gather)], kNone) << gather;
  graph.tensors[static_cast<std::size_t>(large)].bytes = 21;
  auto const fewer = raised_gates(Problem(graph, model), serial);
  // Now two fit: each gather from the second on waits for the use before the last to have started.
  EXPECT_EQ(fewer[0], kNone);
  EXPECT_EQ(fewer[2], kNone);
  EXPECT_EQ(fewer[4], 1);
  EXPECT_EQ(fewer[6], 3);
  for (TaskId const use : {1, 3, 5, 7}) EXPECT_EQ(fewer[static_cast<std::size_t>(use)], kNone);
}

TEST(RaisedGates, AreWhatThePolicyRunsBy) {
  OpGraph const graph = gathers(16, 20, 30);  // 10 s of sending for 30 s of computing
  CostModel const model(unit_cluster());
  // Its order has a peak of one weight: the next is gathered while one is used. Early starts gather all of them.
  auto const bytes = [&](SchedulePolicy policy) {
    return plan_schedule(graph, model, {.policy = policy, .capacity = 1 << 20}).peak_bytes;
  };
  std::int64_t const least = serial_peak_bytes(graph, model);
  EXPECT_EQ(bytes(SchedulePolicy::inductor), least + 20);
  EXPECT_GT(bytes(SchedulePolicy::asap), least + 100);
}

TEST(UrgencyWithRush, PutsWhatIsLongFromTheEndFirstInTheLastPart) {
  // Two operators of 10 s; then one that is followed by sending, which stands behind one that is not.
  OpGraph graph{.name = "rush"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  TensorId const gradient = graph.add(OpTensor{.name = "gradient", .bytes = 8});
  for (int i = 0; i < 3; ++i) graph.add(OpNode{.name = "compute" + std::to_string(i), .flops = 10});
  graph.add(OpNode{.name = "last", .flops = 10, .writes = {gradient}});
  graph.add(OpNode{.name = "send",
                   .kind = OpKind::collective,
                   .collective = {CollectiveKind::reduce_scatter, 8, world},
                   .reads = {gradient}});
  CostModel const model(unit_cluster());
  Problem const problem(graph, model);
  EXPECT_EQ(urgency_with_rush(problem, problem.order(), 0), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(urgency_with_rush(problem, problem.order(), 0.5), (std::vector<double>{0, 1, 3, 2, 4}));
}

}  // namespace
}  // namespace weft
