#pragma once

#include <algorithm>

#include "collectives/p2p/context.hpp"

namespace weft::p2p {

/// A rank's place in the binomial tree whose nodes are the ranks counted from `root` on, around. The parent of node v
/// is v without its lowest bit; its subtree is the nodes [v, v + reach).
class Binomial {
 public:
  Binomial(Context const& context, int root) noexcept
      : size_(context.size()), root_(root), node_((context.rank() - root + size_) % size_) {
    reach_ = 1;
    while (reach_ < size_ && (node_ & reach_) == 0) reach_ *= 2;
  }

  [[nodiscard]] int node() const noexcept { return node_; }
  [[nodiscard]] bool is_root() const noexcept { return node_ == 0; }
  [[nodiscard]] int rank_of(int node) const noexcept { return (node + root_) % size_; }
  [[nodiscard]] int parent() const noexcept { return rank_of(node_ - reach_); }
  /// Children are at node() + distance, for the powers of two below reach().
  [[nodiscard]] int reach() const noexcept { return reach_; }
  [[nodiscard]] bool has_child(int distance) const noexcept { return node_ + distance < size_; }
  [[nodiscard]] int child(int distance) const noexcept { return rank_of(node_ + distance); }
  /// Number of nodes in this node's subtree, or in that of the child at `distance`.
  [[nodiscard]] int subtree() const noexcept { return std::min(reach_, size_ - node_); }
  [[nodiscard]] int subtree(int distance) const noexcept { return std::min(distance, size_ - node_ - distance); }

 private:
  int size_;
  int root_;
  int node_;
  int reach_;
};

}  // namespace weft::p2p
