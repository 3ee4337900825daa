#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "weft/overlap.hpp"

namespace weft {

/// Disjoint, non-empty, non-adjacent intervals in ascending order: the normal form of a union.
using IntervalSet = std::vector<Interval>;

/// The union of `intervals`; empty and reversed ones (end <= start) contribute nothing.
[[nodiscard]] IntervalSet unite(std::span<Interval const> intervals);
[[nodiscard]] IntervalSet intersect(IntervalSet const& a, IntervalSet const& b);
/// The parts of `a` that are not in `b`.
[[nodiscard]] IntervalSet subtract(IntervalSet const& a, IntervalSet const& b);
[[nodiscard]] std::chrono::nanoseconds length(IntervalSet const& set);

}  // namespace weft
