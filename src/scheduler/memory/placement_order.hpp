#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "scheduler/memory/sections.hpp"

namespace weft {

/// What buffers are sorted by, most first; what letters further left leave equal is decided by those further right:
/// T, the most bytes that are live at one time of its life; W, how long that is; A, this times its size; S, its size.
using PlacementKeys = std::string_view;

/// Buffers that hold memory, in that order; of equals, the one that was given first.
[[nodiscard]] std::vector<int> placement_order(Sections const& sections, PlacementKeys keys);

}  // namespace weft
