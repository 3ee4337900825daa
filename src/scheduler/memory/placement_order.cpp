#include "scheduler/memory/placement_order.hpp"

#include <algorithm>
#include <cstddef>

namespace weft {

namespace {

double value_of(Sections const& sections, Shape const& shape, char key) {
  auto const bytes = static_cast<double>(shape.bytes);
  switch (key) {
    case 'W': return shape.duration;
    case 'A': return shape.duration * bytes;
    case 'S': return bytes;
    default: break;
  }
  std::int64_t most = 0;
  for (Piece const& piece : shape.pieces) {
    auto const first = sections.live.begin();
    most = std::max(most, *std::max_element(first + piece.begin, first + piece.end));
  }
  return static_cast<double>(most);
}

}  // namespace

std::vector<int> placement_order(Sections const& sections, PlacementKeys keys) {
  std::vector<std::vector<double>> values;
  std::vector<int> order;
  for (std::size_t i = 0; i < sections.shapes.size(); ++i) {
    Shape const& shape = sections.shapes[i];
    auto& mine = values.emplace_back();
    if (shape.pieces.empty()) continue;
    for (char const key : keys) mine.push_back(value_of(sections, shape, key));
    order.push_back(static_cast<int>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  return order;
}

}  // namespace weft
