#pragma once

#include <cstdint>
#include <string>

#include "sharding/unit_layout.hpp"
#include "sharding/use_order.hpp"

namespace weft {

/// The tag of calls that gather or reduce a unit: of equally large units nothing else tells ranks which one another
/// rank means. Never 0, and never one of StepSettings.
[[nodiscard]] std::uint32_t tag_of(Use const& use) noexcept;

/// What a communicator says of calls that differ, with "tag N" in words: "unit 'layer 3' in forward".
[[nodiscard]] std::string name_units(std::string const& what, UnitLayout const& layout);

}  // namespace weft
