#pragma once

#include <vector>

#include "scheduler/recompute/step_order.hpp"

namespace weft {

/// Which operators of a step are run again, and who reads the second run.
struct Selection {
  std::vector<bool> again{};  ///< by operator
  /// By operator: from this place on its results are read from the second run.
  std::vector<Place> late{};

  [[nodiscard]] bool operator[](OpId op) const { return again[static_cast<std::size_t>(op)]; }
  [[nodiscard]] Place late_of(OpId op) const { return late[static_cast<std::size_t>(op)]; }
};

/// For each operator, where its results lie idle while memory is short. Of the times between two uses (or between the
/// first run and the first use) it takes the one in which the sum of `shortage` (by place) is largest, and returns the
/// place of its end; kNever where the sum is nowhere above 0.
[[nodiscard]] std::vector<Place> late_places(StepOrder const& step, std::vector<double> const& shortage);

/// Whether `reader` reads the second run of `op`'s results rather than `tensor`, which is one of the first run's.
[[nodiscard]] bool reads_late(StepOrder const& step, Place late, OpId reader, TensorId tensor);

}  // namespace weft
