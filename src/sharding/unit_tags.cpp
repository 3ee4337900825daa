#include "sharding/unit_tags.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <system_error>

namespace weft {

std::uint32_t tag_of(Use const& use) noexcept {
  return static_cast<std::uint32_t>(2 * use.unit + (use.phase == Phase::backward ? 2 : 1));
}

std::string name_units(std::string const& what, UnitLayout const& layout) {
  constexpr std::string_view kTag = "tag ";
  std::string named;
  std::size_t at = 0;
  for (std::size_t found = 0; (found = what.find(kTag, at)) != std::string::npos;) {
    std::size_t const number = found + kTag.size();
    named.append(what, at, number - at);
    at = number;
    std::uint32_t tag = 0;
    auto const [end, error] = std::from_chars(what.data() + number, what.data() + what.size(), tag);
    if (error != std::errc{} || tag == 0 || (tag - 1) / 2 >= layout.unit_count()) continue;
    named.resize(named.size() - kTag.size());
    named += fmt::format("unit '{}' in {}", layout.name((tag - 1) / 2), tag % 2 == 1 ? "forward" : "backward");
    at = static_cast<std::size_t>(end - what.data());
  }
  return named.append(what, at);
}

}  // namespace weft
