#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// An order of tasks, and how far it is from the best.
struct MemoryOrder {
  std::vector<TaskId> order{};
  std::int64_t peak = 0;   ///< bytes live, resident ones included
  std::int64_t bound = 0;  ///< no order has a lower peak; equals `peak` where that is known to be the least
};

/// Finds an order of low peak. It starts from several orders: the program's, as_soon_as_possible(), depth_first(),
/// greedy_order(), and each of these with tasks moved by just_in_time(). For each segment (segments.hpp) it takes the
/// best of them, or the best order there is where the segment has no more than kMostExactTasks tasks. Then it moves
/// what runs around the peak towards what least_live() says is the least there, and orders the neighbourhood exactly,
/// for as long as that helps. The result depends on the problem alone.
[[nodiscard]] MemoryOrder memory_order(Problem const& problem);

}  // namespace weft
