#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/recompute/selection.hpp"

namespace weft {

/// A step in which a selection is run again, and the time and memory that it takes in the order of its ids.
struct Rewritten {
  OpGraph graph{};
  std::vector<OpId> again{};     ///< operators of the selection whose second run something needs; rising
  std::vector<OpId> original{};  ///< by operator of `graph`: the operator of the step whose run it is
  std::vector<bool> second{};    ///< by operator: it is a second run, or was moved to where one would be
  std::vector<Place> base{};     ///< by operator: its place in the order, of second runs that of what needs them first
  double seconds = 0;            ///< seconds that second runs take
  std::vector<std::int64_t> live{};  ///< live bytes while each operator runs
  std::int64_t peak_bytes = 0;
  std::size_t peak_at = 0;  ///< the operator at which the peak is reached
};

/// Adds second runs to a step. Each stands right before the first operator that needs it; where nothing needs the first
/// run any more, that run is moved there instead. Operators of the selection are left out if nothing needs their second
/// run, or if it would read memory that is written over by then. Where the result takes more than `budget`, operators
/// are moved for less memory (just_in_time()). None where the result would have a cycle.
[[nodiscard]] std::optional<Rewritten> rewrite(StepOrder const& step, Selection selection, std::int64_t budget);

}  // namespace weft
