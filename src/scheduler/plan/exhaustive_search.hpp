#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// try_all_orders() is meant for no more tasks than this.
inline constexpr std::size_t kMostExhaustiveTasks = 12;

struct OrderLimits {
  std::int64_t capacity = 0;  ///< bytes that may be live at any time
  /// Only orders that end before this many seconds are looked for.
  double below_s = std::numeric_limits<double>::infinity();
  std::size_t most_starts = 1'000'000;  ///< tasks started in all orders together, before the search gives up
};

struct ShortestOrder {
  std::vector<TaskId> order{};  ///< of starts; empty where none ends before OrderLimits::below_s within the capacity
  double makespan_s = std::numeric_limits<double>::infinity();
  std::size_t starts = 0;  ///< tasks that were started in all orders together
  bool complete = true;    ///< all orders were tried, or none of those left out can be shorter
};

/// Finds the order whose schedule is the shortest, without contention: each task starts as soon as it may after the
/// tasks before it, as run_tasks() does with in_order. That is enough, as the order of any schedule gives one that is
/// no longer: by induction no task starts later, and so none finds more memory taken.
[[nodiscard]] ShortestOrder try_all_orders(Problem const& problem, OrderLimits const& limits);

}  // namespace weft
