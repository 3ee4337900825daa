#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "gathers.hpp"
#include "random_graph.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/order/serial_order.hpp"
#include "scheduler/plan/merge_collectives.hpp"

namespace weft {
namespace {

using test::gathers;
using test::random_graph;
using test::unit_cluster;

TEST(MergeCollectives, NeverMakesACycle) {
  std::mt19937 random(23);
  std::size_t merged_ones = 0;
  for (int round = 0; round < 300; ++round) {
    OpGraph graph = random_graph(random, {.ops = 5 + random() % 40, .collectives = 0.5});
    for (auto& op : graph.ops) op.collective.bytes <<= 20;  // large enough to be merged by themselves
    CostModel const model(unit_cluster());
    Problem const problem(graph, model);
    auto const serial = low_memory_order(problem);
    auto const merged = merge_collectives(problem, serial,
                                          {.gather_bytes = static_cast<std::int64_t>(random() % 60) << 20,
                                           .reduce_bytes = static_cast<std::int64_t>(random() % 60) << 20,
                                           .capacity = std::int64_t{1} << 40});
    merged_ones += merged.launches.size();
    Problem const after(graph, model, merged.launches);  // throws where there is a cycle
    EXPECT_EQ(serial_order_by(merged, after).size(), after.tasks().size());
  }
  EXPECT_GT(merged_ones, 100u);
}

TEST(MergeCollectives, FirstGathersAreSmall) {
  OpGraph const graph = gathers(6, std::int64_t{1} << 21, 1);  // operator 2 i gathers what 2 i + 1 uses
  CostModel const model(unit_cluster());
  Problem const problem(graph, model);
  MergeRules rules{.gather_bytes = std::int64_t{1} << 30, .capacity = std::int64_t{1} << 40, .share = 1, .taper = 1};
  using Launches = std::vector<std::vector<OpId>>;
  EXPECT_EQ(merge_collectives(problem, problem.order(), rules).launches, (Launches{{4, 6}, {8, 10}}));
  rules.taper = 0;
  EXPECT_EQ(merge_collectives(problem, problem.order(), rules).launches, (Launches{{0, 2, 4, 6, 8, 10}}));
}

TEST(MergeCollectives, KeepsTheCapacity) {
  OpGraph const graph = gathers(6, std::int64_t{1} << 21, 1);
  CostModel const model(unit_cluster());
  Problem const problem(graph, model);
  MergeRules const rules{.gather_bytes = std::int64_t{1} << 30,
                         .capacity = problem.resident_bytes() + (std::int64_t{3} << 21) + 16,
                         .share = 1,
                         .taper = 0};
  auto const merged = merge_collectives(problem, problem.order(), rules);
  Problem const after(graph, model, merged.launches);
  EXPECT_LE(serial_peak(after, serial_order_by(merged, after)), rules.capacity);
  EXPECT_EQ(merged.launches.size(), 3U);
}

}  // namespace
}  // namespace weft
