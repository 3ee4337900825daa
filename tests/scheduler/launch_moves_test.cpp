#include "scheduler/plan/launch_moves.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include "random_graph.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/send_when_ready.hpp"

namespace weft {
namespace {

using test::random_graph;
using test::unit_cluster;

std::vector<OpId> all_of(Launches const& launches) {
  std::vector<OpId> all;
  for (auto const& launch : launches) all.insert(all.end(), launch.begin(), launch.end());
  std::sort(all.begin(), all.end());
  return all;
}

TEST(LaunchMoves, KeepAllCollectives) {
  Neighbours const here{.before = {0, 1, 2}, .launch = {3, 4, 5, 6}, .after = {7}};
  auto const moves = moves_of(here);
  EXPECT_GE(moves.size(), 8U);
  for (auto const& move : moves) {
    EXPECT_EQ(all_of(move), (std::vector<OpId>{0, 1, 2, 3, 4, 5, 6, 7}));
    for (auto const& launch : move) EXPECT_FALSE(launch.empty());
  }
  EXPECT_TRUE(moves_of({.launch = {3}}).empty());
}

TEST(LaunchMoves, GatherWhereTheFirstWasAndReduceWhereTheLastWas) {
  OpGraph graph{.name = "four"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  for (auto const kind : {CollectiveKind::all_gather, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                          CollectiveKind::reduce_scatter}) {
    graph.add(OpNode{.name = "op", .kind = OpKind::collective, .collective = {kind, 1, world}});
  }
  Merged const apart{.key = {0, 1, 2, 3}, .earlier = std::vector<bool>(4, false)};
  Merged const together = rearranged(rearranged(apart, graph, {{0, 1}}), graph, {{2, 3}});
  EXPECT_EQ(together.launches, (Launches{{0, 1}, {2, 3}}));
  EXPECT_EQ(together.key, (std::vector<double>{0, 0, 3, 3}));
  EXPECT_EQ(together.earlier, (std::vector<bool>{false, true, false, false}));
  EXPECT_TRUE(rearranged(together, graph, {{0}, {1}}).launches == (Launches{{2, 3}}));
}

TEST(SendWhenReady, MergesWithoutCyclesAndWithinTheCapacity) {
  std::mt19937 random(41);
  std::size_t merged = 0;
  for (int round = 0; round < 300; ++round) {
    OpGraph const graph = random_graph(random, {.ops = 5 + random() % 40, .collectives = 0.5});
    CostModel const model(unit_cluster(0.5));
    Problem const problem(graph, model);
    auto const serial = low_memory_order(problem);
    std::int64_t const capacity = serial_peak(problem, serial) + static_cast<std::int64_t>(random() % 60);
    auto const some = [&](double most) { return most * static_cast<double>(random() % 100) / 100; };
    Sent const sent = send_when_ready(problem, serial,
                                      {.capacity = capacity,
                                       .contention = some(0.5),
                                       .ahead = some(3),
                                       .least_bytes = some(20),
                                       .gather_bytes = some(40),
                                       .reduce_bytes = some(40),
                                       .share = some(1),
                                       .taper = some(1),
                                       .window = static_cast<std::int32_t>(random() % 20)});
    merged += sent.launches.size();
    auto started = sent.started;
    std::sort(started.begin(), started.end());
    ASSERT_EQ(started.size(), graph.ops.size()) << "round " << round;
    EXPECT_EQ(std::adjacent_find(started.begin(), started.end()), started.end()) << "round " << round;
    Problem const after(graph, model, sent.launches);  // throws where there is a cycle
    std::vector<TaskId> order;
    for (OpId const op : sent.started) {
      TaskId const task = after.task_of(op);
      if (std::find(order.begin(), order.end(), task) == order.end()) order.push_back(task);
    }
    EXPECT_LE(serial_peak(after, order), capacity) << "round " << round;
  }
  EXPECT_GT(merged, 50U);
}

}  // namespace
}  // namespace weft
