#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/recompute/selection.hpp"

namespace weft {

/// A step with a selection run again, and what it takes in the order of its ids.
struct Rewritten {
  OpGraph graph{};
  std::vector<OpId> again{};     ///< of the selection, what something needs; rising
  std::vector<OpId> original{};  ///< by operator: whose run it is
  std::vector<bool> second{};    ///< by operator: it is a second run, or was moved to where one would be
  std::vector<Place> base{};     ///< by operator: its place in the order, of second runs that of what needs them first
  double seconds = 0;            ///< of second runs
  std::vector<std::int64_t> live{};  ///< bytes, by operator
  std::int64_t peak_bytes = 0;
  std::size_t peak_at = 0;  ///< the operator
};

/// Second runs stand right before the first operator that needs them; where nothing is left that needs the first run,
/// it is moved there instead. Operators of the selection are left out that nothing needs, or that would read memory
/// which is written over by then. Where that takes more than `budget`, operators are moved for less memory
/// (just_in_time()). None where a cycle would come of it.
[[nodiscard]] std::optional<Rewritten> rewrite(StepOrder const& step, Selection selection, std::int64_t budget);

}  // namespace weft
