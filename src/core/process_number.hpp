#pragma once

#include <cstdint>

namespace weft {

/// A number of this process that none of those it was forked from has. As cheap as a load. Any thread.
[[nodiscard]] std::uint32_t process_number() noexcept;

}  // namespace weft
