#pragma once

#include <cstdint>
#include <string>

#include "sharding/unit_layout.hpp"
#include "sharding/use_order.hpp"

namespace weft {

/// The tag of calls that gather or reduce a unit. Where units are equally large nothing else tells ranks which one
/// another rank means. Never 0, and never one of StepSettings.
[[nodiscard]] std::uint32_t tag_of(Use const& use) noexcept;

/// A communicator's text about calls that differ, with each "tag N" in words: "unit 'layer 3' in forward".
[[nodiscard]] std::string name_units(std::string const& what, UnitLayout const& layout);

}  // namespace weft
