#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace weft {

/// Finds the largest flow from one node of a network to another (Y. Dinitz, 1970: shortest paths first, all of one
/// length at once).
class MaxFlow {
 public:
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

  explicit MaxFlow(std::size_t nodes) : edges_of_(nodes) {}

  void add_edge(std::int32_t from, std::int32_t to, std::int64_t capacity);
  /// Returns the largest flow. To be called once. The capacities other than kUnlimited must add up to less than
  /// kUnlimited.
  [[nodiscard]] std::int64_t run(std::int32_t source, std::int32_t sink);
  /// After run(): for each node, whether it is on the source's side of a minimum cut (of several cuts, the one with the
  /// fewest nodes on that side).
  [[nodiscard]] std::vector<bool> source_side(std::int32_t source) const;

 private:
  struct Edge {
    std::int32_t to;
    std::int64_t left;
  };
  bool find_levels(std::int32_t source, std::int32_t sink);
  std::int64_t push(std::int32_t source, std::int32_t sink);

  std::vector<Edge> edges_;  ///< each followed by its reverse
  std::vector<std::vector<std::int32_t>> edges_of_;
  std::vector<std::int32_t> level_;
  std::vector<std::size_t> next_;
};

}  // namespace weft
