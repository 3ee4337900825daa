#include "scheduler/order/max_flow.hpp"

#include <algorithm>
#include <cstddef>

#include "scheduler/graph/at.hpp"

namespace weft {

void MaxFlow::add_edge(std::int32_t from, std::int32_t to, std::int64_t capacity) {
  edges_of_[at(from)].push_back(static_cast<std::int32_t>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[at(to)].push_back(static_cast<std::int32_t>(edges_.size()));
  edges_.push_back({from, 0});
}

std::int64_t MaxFlow::run(std::int32_t source, std::int32_t sink) {
  std::int64_t total = 0;
  while (find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    while (std::int64_t const pushed = push(source, sink)) total += pushed;
  }
  return total;
}

bool MaxFlow::find_levels(std::int32_t source, std::int32_t sink) {
  level_.assign(edges_of_.size(), -1);
  level_[at(source)] = 0;
  std::vector<std::int32_t> queue{source};
  for (std::size_t i = 0; i < queue.size() && level_[at(sink)] < 0; ++i) {
    for (std::int32_t const id : edges_of_[at(queue[i])]) {
      Edge const& edge = edges_[at(id)];
      if (edge.left == 0 || level_[at(edge.to)] >= 0) continue;
      level_[at(edge.to)] = level_[at(queue[i])] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[at(sink)] >= 0;
}

/// Pushes flow along one path and returns how much; 0 where no path is left. A loop, not a recursion: paths can be as
/// long as the graph.
std::int64_t MaxFlow::push(std::int32_t source, std::int32_t sink) {
  std::vector<std::int32_t> path;
  std::int32_t node = source;
  while (node != sink) {
    auto const& mine = edges_of_[at(node)];
    std::size_t& next = next_[at(node)];
    while (next < mine.size()) {
      Edge const& edge = edges_[at(mine[next])];
      if (edge.left > 0 && level_[at(edge.to)] == level_[at(node)] + 1) break;
      ++next;
    }
    if (next < mine.size()) {
      path.push_back(mine[next]);
      node = edges_[at(mine[next])].to;
    } else {
      if (path.empty()) return 0;
      node = edges_[at(path.back() ^ 1)].to;
      path.pop_back();
      ++next_[at(node)];
    }
  }
  std::int64_t least = kUnlimited;
  for (std::int32_t const id : path) least = std::min(least, edges_[at(id)].left);
  for (std::int32_t const id : path) {
    if (edges_[at(id)].left != kUnlimited) edges_[at(id)].left -= least;
    if (edges_[at(id ^ 1)].left != kUnlimited) edges_[at(id ^ 1)].left += least;
  }
  return least;
}

std::vector<bool> MaxFlow::source_side(std::int32_t source) const {
  std::vector<bool> there(edges_of_.size(), false);
  there[at(source)] = true;
  std::vector<std::int32_t> look{source};
  while (!look.empty()) {
    std::int32_t const node = look.back();
    look.pop_back();
    for (std::int32_t const id : edges_of_[at(node)]) {
      Edge const& edge = edges_[at(id)];
      if (edge.left == 0 || there[at(edge.to)]) continue;
      there[at(edge.to)] = true;
      look.push_back(edge.to);
    }
  }
  return there;
}

}  // namespace weft
