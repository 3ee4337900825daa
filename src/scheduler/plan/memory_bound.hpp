#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/exposed_sending.hpp"

namespace weft {

struct MemoryBoundTerms {
  std::vector<double> const& bodies;  ///< seconds of each task that no merging saves
  ExposedSending const& exposed;
  std::vector<TaskId> path{};  ///< the longest through all tasks, in its order
  std::vector<TaskId> cuts{};  ///< tasks of it at which to cut
  double contention = 0;
  std::int64_t capacity = 0;
};

/// LowerBound::memory_s; bounds.hpp has the formulas. The highest bound over all cuts. Launches are counted only at the
/// few cuts that give the highest bound without them, and what memory allows behind a cut only at the fullest one.
/// O(cuts x (tasks + edges)), and what the launches that are looked at take.
[[nodiscard]] double memory_bound(Problem const& problem, MemoryBoundTerms const& terms);

}  // namespace weft
