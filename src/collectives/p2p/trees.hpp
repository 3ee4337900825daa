#pragma once

#include <array>

#include "collectives/p2p/context.hpp"

namespace weft::p2p {

/// A rank's place in a binary tree whose subtrees are intervals: `before` is the child whose subtree has lower numbers.
struct TreePlace {
  int parent = -1;
  int before = -1;
  int after = -1;

  [[nodiscard]] bool is_leaf() const noexcept { return before < 0 && after < 0; }
  [[nodiscard]] bool is_root() const noexcept { return parent < 0; }
};

/// Two trees of `size` nodes, of which every node is a leaf in one at least (Sanders, Speck, Träff 2009): with half of
/// the data each, all links work in both directions. The second is the first one mirrored or, where that makes the same
/// nodes leaves (odd sizes), turned by one; `keep_order` mirrors always.
[[nodiscard]] std::array<TreePlace, 2> double_tree(int node, int size, bool keep_order);

}  // namespace weft::p2p
