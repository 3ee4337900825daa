#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "scheduler/graph/at.hpp"

namespace weft {

/// List scheduling on one machine. Of the `count` nodes, those in `edges.before(id)` have to come before `id` and those
/// in `edges.after(id)` behind it. Of the nodes that can be next it always takes the one of least `key(id)`, of equals
/// the lowest id. Nodes on a cycle, and nodes that wait for them, are left out.
template <typename Edges, typename Key>
[[nodiscard]] std::vector<std::int32_t> list_order(Edges const& edges, std::size_t count, Key const& key) {
  using Entry = std::pair<decltype(key(0)), std::int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  std::vector<std::size_t> waits_for(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto const id = static_cast<std::int32_t>(i);
    waits_for[i] = edges.before(id).size();
    if (waits_for[i] == 0) ready.emplace(key(id), id);
  }
  std::vector<std::int32_t> order;
  order.reserve(count);
  while (!ready.empty()) {
    std::int32_t const id = ready.top().second;
    ready.pop();
    order.push_back(id);
    for (std::int32_t const later : edges.after(id)) {
      if (--waits_for[at(later)] == 0) ready.emplace(key(later), later);
    }
  }
  return order;
}

}  // namespace weft
