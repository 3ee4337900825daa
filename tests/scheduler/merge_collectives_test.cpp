#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "random_graph.hpp"
#include "scheduler/plan/merge_collectives.hpp"
#include "scheduler/plan/problem.hpp"
#include "scheduler/plan/serial_order.hpp"

namespace weft {
namespace {

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

}  // namespace
}  // namespace weft
