#pragma once

#include <vector>

#include "scheduler/recompute/selection.hpp"

namespace weft {

/// The selection of least sum of the seconds that second runs take and, of all that is kept for later, bytes x `price`
/// x the shortage (by place, of sum 1) while it lies idle. What second runs hold meanwhile is not in the sum.
///
/// A minimum cut: of a tensor either the first run's value is kept or its operator runs again, for which all that it
/// reads has to be there; what late readers need has to be there. Costs on the edges: keeping between a tensor's two
/// nodes, running again from the source to the operator's node.
[[nodiscard]] std::vector<bool> select_by_cut(StepOrder const& step, std::vector<Place> const& late,
                                              std::vector<double> const& shortage, double price);

}  // namespace weft
