#include "sharding/tag_texts.hpp"

#include <charconv>
#include <string_view>
#include <system_error>

namespace weft {

std::string name_tags(std::string const& what, std::function<std::string(std::uint32_t)> const& words) {
  constexpr std::string_view kTag = "tag ";
  std::string named;
  std::size_t at = 0;
  for (std::size_t found = 0; (found = what.find(kTag, at)) != std::string::npos;) {
    std::size_t const number = found + kTag.size();
    named.append(what, at, number - at);
    at = number;
    std::uint32_t tag = 0;
    auto const [end, error] = std::from_chars(what.data() + number, what.data() + what.size(), tag);
    if (error != std::errc{}) continue;
    std::string const name = words(tag);
    if (name.empty()) continue;
    named.resize(named.size() - kTag.size());
    named += name;
    at = static_cast<std::size_t>(end - what.data());
  }
  return named.append(what, at);
}

}  // namespace weft
