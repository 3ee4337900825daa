#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// Places in [begin, end) of an order.
struct Segment {
  std::size_t begin;
  std::size_t end;
};

/// Some tasks have all others either before or after them, in every order: they have the same place in each, and what
/// lies between two of them is the same everywhere. Such a task is a segment of its own, and so is what lies between
/// two. What is live at their borders depends on no order, so that the best orders of all segments are the best order.
[[nodiscard]] std::vector<Segment> segments_of(Problem const& problem);

}  // namespace weft
