#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "random_graph.hpp"
#include "scheduler/order/problem.hpp"
#include "scheduler/plan/bounds.hpp"

namespace weft {
namespace {

/// `count` all_reduces among 16 hosts, that nothing waits for.
OpGraph all_reduces(int count, std::int64_t bytes, std::optional<double> seconds = {}) {
  OpGraph graph{.name = "all_reduces"};
  OpGroup world{.name = "world", .sets = {{}}};
  for (int rank = 0; rank < 16; ++rank) world.sets.front().push_back(rank);
  GroupId const group = graph.add(world);
  for (int i = 0; i < count; ++i) {
    TensorId const sum = graph.add(OpTensor{.name = "t" + std::to_string(i), .bytes = bytes});
    graph.add(OpNode{.name = "op" + std::to_string(i),
                     .kind = OpKind::collective,
                     .seconds = seconds,
                     .collective = {CollectiveKind::all_reduce, bytes, group},
                     .writes = {sum}});
  }
  return graph;
}

TEST(MergedCost, IsNotBelowTheBoundWhereAnotherAlgorithmIsFastestForAll) {
  CostModel const model(test::unit_cluster(1));
  OpGraph const graph = all_reduces(2, 170);  // each by trees, both together by a ring
  GroupPlacement const world = model.placement(graph.groups.front());
  ASSERT_EQ(model.collective(CollectiveKind::all_reduce, 170, world).algorithm, CollectiveAlgorithm::tree);
  ASSERT_EQ(model.collective(CollectiveKind::all_reduce, 340, world).algorithm, CollectiveAlgorithm::ring);
  Problem const merged(graph, model, {{0, 1}});
  ASSERT_EQ(merged.tasks().size(), 1U);
  double const bound = lower_bound(Problem(graph, model), 0, 1'000'000).best_s();
  EXPECT_LE(bound, merged.tasks().front().seconds * (1 + 1e-12));
  EXPECT_GT(bound, merged.tasks().front().seconds * 0.9);
}

TEST(MergedCost, OfMeasuredOnesIsNoLessThanTheLongestOfThem) {
  CostModel const model(test::unit_cluster(1));
  OpGraph graph = all_reduces(8, 10, 0.1);
  graph.ops.front().seconds = 5;
  Problem const merged(graph, model, {{0, 1, 2, 3, 4, 5, 6, 7}});
  EXPECT_GE(merged.tasks().front().seconds, 5);
  EXPECT_LE(lower_bound(Problem(graph, model), 0, 1'000'000).best_s(), merged.tasks().front().seconds + 1e-12);
}

}  // namespace
}  // namespace weft
