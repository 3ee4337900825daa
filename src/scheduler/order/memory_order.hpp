#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// An order of tasks, and how far it is from the best.
struct MemoryOrder {
  std::vector<TaskId> order{};
  std::int64_t peak = 0;   ///< bytes live, resident ones included
  std::int64_t bound = 0;  ///< no order has a lower peak; the peak where it is known to be the least
};

/// The order of least peak of those that are known: of program, as_soon_as_possible, depth_first, greedy_order and
/// these with tasks moved just_in_time, in each segment (segments.hpp) the best one, or the best there is where a
/// segment has no more than kMostExactTasks. The place of the peak is then moved towards what least_live() says is the
/// least there, and ordered anew exactly, as long as that helps. Depends on the problem alone.
[[nodiscard]] MemoryOrder memory_order(Problem const& problem);

}  // namespace weft
