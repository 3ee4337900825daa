#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/exposed_sending.hpp"
#include "scheduler/plan/problem.hpp"

namespace weft {

struct MemoryBoundTerms {
  std::vector<double> const& bodies;  ///< seconds of each task that no merging saves
  ExposedSending const& exposed;
  std::vector<TaskId> cuts{};  ///< tasks at which to cut
  double contention = 0;
  std::int64_t capacity = 0;
};

/// LowerBound::memory_s (bounds.hpp has the formula): the highest over all cuts. O(cuts x (tasks + edges)).
[[nodiscard]] double memory_bound(Problem const& problem, MemoryBoundTerms const& terms);

}  // namespace weft
