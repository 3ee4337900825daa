#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace weft {

/// A communicator's text about calls that differ, with each "tag N" replaced by what `words` returns for it; where that
/// is empty, the tag stays.
[[nodiscard]] std::string name_tags(std::string const& what, std::function<std::string(std::uint32_t)> const& words);

}  // namespace weft
