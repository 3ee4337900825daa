#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft {

/// Which operators of a graph wait for which: data and control edges as lists by operator, each edge once.
class Dependencies {
 public:
  /// Pre: all ids of the graph are in range.
  explicit Dependencies(OpGraph const& graph);

  /// Operators that have to end before `op` starts, by rising id.
  [[nodiscard]] std::span<OpId const> before(OpId op) const { return part(before_, before_begin_, op); }
  /// Operators that wait for `op`, by rising id.
  [[nodiscard]] std::span<OpId const> after(OpId op) const { return part(after_, after_begin_, op); }
  [[nodiscard]] std::size_t size() const { return before_begin_.size() - 1; }

 private:
  static std::span<OpId const> part(std::vector<OpId> const& of, std::vector<std::size_t> const& begin, OpId op) {
    auto const at = static_cast<std::size_t>(op);
    return std::span(of).subspan(begin[at], begin[at + 1] - begin[at]);
  }

  std::vector<OpId> before_;
  std::vector<std::size_t> before_begin_;
  std::vector<OpId> after_;
  std::vector<std::size_t> after_begin_;
};

}  // namespace weft
