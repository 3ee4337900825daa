#pragma once

#include <vector>

#include "scheduler/recompute/step_order.hpp"

namespace weft {

/// What of a step is run again.
struct Selection {
  std::vector<bool> again{};  ///< by operator
  /// By operator: who reads its results from this place on reads those of the second run.
  std::vector<Place> late{};

  [[nodiscard]] bool operator[](OpId op) const { return again[static_cast<std::size_t>(op)]; }
  [[nodiscard]] Place late_of(OpId op) const { return late[static_cast<std::size_t>(op)]; }
};

/// Where each operator's results lie idle while memory is short: of the times between two uses (or from the first run
/// to the first use) that in which the sum of `shortage` (by place) is largest, or kNever where it is nowhere above 0.
[[nodiscard]] std::vector<Place> late_places(StepOrder const& step, std::vector<double> const& shortage);

/// From where on `reader` reads the second run of `op`'s results rather than `tensor`, which is one of the first.
[[nodiscard]] bool reads_late(StepOrder const& step, Place late, OpId reader, TensorId tensor);

}  // namespace weft
