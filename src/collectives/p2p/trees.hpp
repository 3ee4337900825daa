#pragma once

#include <array>

#include "collectives/p2p/context.hpp"

namespace weft::p2p {

/// A node's place in a binary tree whose subtrees are intervals: `before` is the child whose subtree has lower numbers,
/// `after` the other. -1: there is none.
struct TreePlace {
  int parent = -1;
  int before = -1;
  int after = -1;

  [[nodiscard]] bool is_leaf() const noexcept { return before < 0 && after < 0; }
  [[nodiscard]] bool is_root() const noexcept { return parent < 0; }
};

/// The places of `node` in two trees of `size` nodes. Every node is a leaf in at least one of them (Sanders, Speck,
/// Träff 2009), so with half of the data in each tree all links work in both directions. The second tree is the first
/// one mirrored or, where that makes the same nodes leaves (odd sizes), turned by one. With `keep_order` it is always
/// mirrored.
[[nodiscard]] std::array<TreePlace, 2> double_tree(int node, int size, bool keep_order);

}  // namespace weft::p2p
