#pragma once

#include <vector>

#include "scheduler/recompute/selection.hpp"

namespace weft {

/// The cheapest selection under a price of memory: least sum of the seconds that second runs take and of the cost of
/// everything that is kept for later, which is bytes x `price` x the shortage (by place, of sum 1) while it lies idle.
/// What second runs hold meanwhile is not in the sum.
///
/// It is found as a minimum cut. For each tensor either the value of the first run is kept, or its operator runs again,
/// for which all that it reads has to be there; and what late readers need has to be there. The costs are on the edges:
/// keeping, between a tensor's two nodes; running again, from the source to the operator's node.
[[nodiscard]] std::vector<bool> select_by_cut(StepOrder const& step, std::vector<Place> const& late,
                                              std::vector<double> const& shortage, double price);

}  // namespace weft
