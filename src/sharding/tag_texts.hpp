#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace weft {

/// What a communicator says of calls that differ, with each "tag N" in words, as `words` has them; where it returns
/// none the tag stays.
[[nodiscard]] std::string name_tags(std::string const& what, std::function<std::string(std::uint32_t)> const& words);

}  // namespace weft
