#include "sharding/unit_tags.hpp"

#include <fmt/format.h>

#include "sharding/step_settings.hpp"
#include "sharding/tag_texts.hpp"

namespace weft {

std::uint32_t tag_of(Use const& use) noexcept {
  return static_cast<std::uint32_t>(2 * use.unit + (use.phase == Phase::backward ? 2 : 1));
}

std::string name_units(std::string const& what, UnitLayout const& layout) {
  return name_tags(what, [&](std::uint32_t tag) {
    if (StepSettings::is_tag(tag)) return StepSettings::name_tag(tag);
    if (tag == 0 || (tag - 1) / 2 >= layout.unit_count()) return std::string();
    return fmt::format("unit '{}' in {}", layout.name((tag - 1) / 2), tag % 2 == 1 ? "forward" : "backward");
  });
}

}  // namespace weft
