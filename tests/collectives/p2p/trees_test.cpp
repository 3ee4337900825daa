#include "collectives/p2p/trees.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft::p2p {
namespace {

/// Nodes of the subtree of `node`, in order.
void walk(std::vector<TreePlace> const& tree, int node, int depth, std::vector<int>& visited) {
  ASSERT_LT(depth, 20);
  if (node < 0) return;
  walk(tree, tree[static_cast<std::size_t>(node)].before, depth + 1, visited);
  visited.push_back(node);
  walk(tree, tree[static_cast<std::size_t>(node)].after, depth + 1, visited);
}

TEST(DoubleTree, BothAreTreesOfAllNodesAndNobodyWorksInBoth) {
  for (int const size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 1023, 1024, 1025}) {
    for (bool const keep_order : {false, true}) {
      std::vector<TreePlace> trees[2];
      for (int node = 0; node < size; ++node) {
        auto const places = double_tree(node, size, keep_order);
        trees[0].push_back(places[0]);
        trees[1].push_back(places[1]);
        if (!keep_order || size % 2 == 0) {
          EXPECT_TRUE(places[0].is_leaf() || places[1].is_leaf()) << node << " of " << size;
        }
      }
      for (std::size_t t = 0; t < 2; ++t) {
        int root = -1;
        for (int node = 0; node < size; ++node) {
          auto const& place = trees[t][static_cast<std::size_t>(node)];
          if (place.is_root()) {
            EXPECT_EQ(root, -1) << size;
            root = node;
          }
          for (int const child : {place.before, place.after}) {
            if (child >= 0) {
              EXPECT_EQ(trees[t][static_cast<std::size_t>(child)].parent, node) << size;
            }
          }
        }
        std::vector<int> visited;
        walk(trees[t], root, 0, visited);
        ASSERT_EQ(visited.size(), static_cast<std::size_t>(size));
        auto const turned = t == 1 && size % 2 == 1 && !keep_order;
        for (int i = 0; i < size; ++i) {
          EXPECT_EQ(visited[static_cast<std::size_t>(i)], turned ? (i + size - 1) % size : i) << size;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::p2p
