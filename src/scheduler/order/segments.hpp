#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// The places [begin, end) of an order.
struct Segment {
  std::size_t begin;
  std::size_t end;
};

/// Cuts the graph's order into segments that can be ordered independently. Some tasks have every other task either
/// before or after them: they have the same place in every order, and the same tasks lie between two of them. Such a
/// task is a segment of its own, and so are the tasks between two of them. What is live at the borders is the same in
/// every order, so the best orders of all segments together are the best order.
[[nodiscard]] std::vector<Segment> segments_of(Problem const& problem);

}  // namespace weft
