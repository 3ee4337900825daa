#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "scheduler/memory/sections.hpp"

namespace weft {

/// The keys that buffers are sorted by, largest first; where the letters further left are equal, those further right
/// decide. T: the most bytes that are live at one time of the buffer's life. W: how long it lives. A: W times its size.
/// S: its size.
using PlacementKeys = std::string_view;

/// The buffers that hold memory, in that order; of equal ones the one that was given first.
[[nodiscard]] std::vector<int> placement_order(Sections const& sections, PlacementKeys keys);

}  // namespace weft
