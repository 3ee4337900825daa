#include "weft/fixed_schedule.hpp"

#include <gtest/gtest.h>

#include "scheduler/execute/commands.hpp"
#include "scheduler/small_step.hpp"

namespace weft::test {
namespace {

std::vector<std::size_t> const kSizes{1000, 5000, 3000, 2000, 9000};  // gradients come in the reverse order

std::vector<std::vector<OpId>> sent(Schedule const& plan) {
  std::vector<std::vector<OpId>> launches;
  for (Launch const& launch : plan.launches) {
    if (launch.resource == Resource::within_host) launches.push_back(launch.ops);
  }
  return launches;
}

TEST(FixedSchedule, ProgramOrderIsTheSumOfAllTimes) {
  SmallStep const small(0, 2, kSizes);
  CostModel const model(slow_cluster(2));
  Schedule const plan = program_schedule(small.graph, model);
  double total = 0;
  for (OpNode const& op : small.graph.ops) {
    total += op.kind == OpKind::collective
                 ? model.collective(op.collective.kind, op.collective.bytes, model.placement(small.graph.groups[0]))
                       .seconds()
                 : model.operator_seconds(op);
  }
  EXPECT_NEAR(plan.makespan_s, total, 1e-9);
  ASSERT_EQ(plan.launches.size(), small.graph.ops.size());
  for (std::size_t i = 1; i < plan.launches.size(); ++i) {
    EXPECT_GE(plan.launches[i].start_s, plan.launches[i - 1].end_s);
  }
  EXPECT_LE(plan.bound.best_s(), plan.makespan_s);
}

TEST(FixedSchedule, BucketsCloseOnceTheyAreFull) {
  SmallStep const small(0, 2, kSizes);
  CostModel const model(slow_cluster(2));
  auto const of = [&](std::size_t layer) { return small.gradients[layer]; };
  using Launches = std::vector<std::vector<OpId>>;
  EXPECT_EQ(sent(bucket_schedule(small.graph, model, 1)), (Launches{{of(4)}, {of(3)}, {of(2)}, {of(1)}, {of(0)}}));
  EXPECT_EQ(sent(bucket_schedule(small.graph, model, 20'000)), (Launches{{of(4)}, {of(3), of(2)}, {of(1)}, {of(0)}}));
  EXPECT_EQ(sent(bucket_schedule(small.graph, model, 40'000)), (Launches{{of(4), of(3)}, {of(2), of(1), of(0)}}));
  EXPECT_EQ(sent(bucket_schedule(small.graph, model, 1 << 30)), (Launches{{of(4), of(3), of(2), of(1), of(0)}}));
}

/// A collective whose link was busy is sent before a long computation that the plan starts first, not after it.
TEST(PlanCommands, CollectivesAreSentAsSoonAsTheirInputsAreThere) {
  OpGraph graph;
  GroupId const group = graph.add(OpGroup{"data", {{0, 1}}});
  OpId const first = graph.add(OpNode{.name = "first", .seconds = 1});
  auto const send = [&](char const* name) {
    return graph.add(OpNode{.name = name,
                            .kind = OpKind::collective,
                            .collective = {CollectiveKind::all_reduce, 4, group},
                            .after = {first}});
  };
  OpId const a = send("a");
  OpId const b = send("b");
  OpId const second = graph.add(OpNode{.name = "second", .seconds = 3, .after = {first}});
  OpId const last = graph.add(OpNode{.name = "last", .seconds = 1, .after = {a}});
  Schedule plan;
  plan.launches = {{{first}, Resource::compute, 0, 1},
                   {{a}, Resource::within_host, 1, 2},
                   {{second}, Resource::compute, 1, 4},
                   {{b}, Resource::within_host, 2, 3},
                   {{last}, Resource::compute, 4, 5}};
  using Kind = PlanCommand::Kind;
  Resource const link = Resource::within_host;
  std::vector<PlanCommand> const early{{Kind::run, 0}, {Kind::send, 1, link}, {Kind::send, 3, link},
                                       {Kind::run, 2}, {Kind::wait, 1, link}, {Kind::run, 4}};
  EXPECT_EQ(plan_commands(graph, plan, false), early);
  std::vector<PlanCommand> const blocking{{Kind::run, 0}, {Kind::send, 1, link}, {Kind::wait, 1, link},
                                          {Kind::run, 2}, {Kind::send, 3, link}, {Kind::wait, 3, link},
                                          {Kind::run, 4}};
  EXPECT_EQ(plan_commands(graph, plan, true), blocking);
}

}  // namespace
}  // namespace weft::test
