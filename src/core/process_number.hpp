#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

namespace detail {
extern std::atomic<std::uint32_t> process_number;
}

/// A number of this process that none of those it was forked from has. As cheap as a load. Any thread.
[[nodiscard]] inline std::uint32_t process_number() noexcept {
  return detail::process_number.load(std::memory_order_relaxed);
}

}  // namespace weft
