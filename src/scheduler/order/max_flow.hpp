#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace weft {

/// A network in which as much as can be flows from one node to another (Y. Dinitz, 1970: shortest paths first, all of a
/// length at once).
class MaxFlow {
 public:
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

  explicit MaxFlow(std::size_t nodes) : edges_of_(nodes) {}

  void add_edge(std::int32_t from, std::int32_t to, std::int64_t capacity);
  /// To be called once. Capacities other than kUnlimited add up to less than that.
  [[nodiscard]] std::int64_t run(std::int32_t source, std::int32_t sink);
  /// After run(), per node: whether it is on the source's side of a least cut, the one with fewest nodes there.
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
