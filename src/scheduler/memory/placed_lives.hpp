#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "scheduler/memory/sections.hpp"

namespace weft {

/// The buffers placed so far, found by when they are needed: a tree over all buffers by the begin of their lives, whose
/// nodes know the latest end below them. Finding k of n takes O(k log n) time.
class PlacedLives {
 public:
  /// `buffers`: those that will be placed.
  PlacedLives(Sections const& sections, std::span<int const> buffers);

  void add(int buffer);

  /// Calls `visit` with every placed buffer that is needed at some time within `shape`'s life.
  template <typename Visit>
  void visit_beside(Shape const& shape, Visit const& visit) const {
    auto const later = std::lower_bound(begins_.begin(), begins_.end(), shape.end());
    Query const query{shape.begin(), static_cast<std::size_t>(later - begins_.begin())};
    descend(kRoot, 0, leaves_, query, visit);
  }

 private:
  static constexpr std::size_t kRoot = 1;

  struct Query {
    int begin;
    std::size_t last;  ///< the leaves from here on begin too late
  };

  /// `node` has the leaves [first, first + leaves).
  template <typename Visit>
  void descend(std::size_t node, std::size_t first, std::size_t leaves, Query const& query, Visit const& visit) const {
    if (first >= query.last || latest_end_[node] <= query.begin) return;
    if (leaves == 1) return visit(buffers_[first]);
    auto const half = leaves / 2;
    descend(2 * node, first, half, query, visit);
    descend(2 * node + 1, first + half, half, query, visit);
  }

  Sections const& sections_;
  std::vector<int> buffers_;          ///< by the begin of their lives
  std::vector<int> begins_;           ///< of the same
  std::vector<std::size_t> leaf_of_;  ///< by buffer
  std::size_t leaves_ = 1;            ///< a power of two
  std::vector<int> latest_end_;       ///< by node, of placed buffers; children of node i are 2 i and 2 i + 1
};

}  // namespace weft
