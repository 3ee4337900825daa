#pragma once

#include <cstddef>
#include <string>

namespace weft {

/// A size for people to read: "57 B", "128.0 KiB", "1.5 MiB".
[[nodiscard]] std::string with_unit(std::size_t bytes);

}  // namespace weft
