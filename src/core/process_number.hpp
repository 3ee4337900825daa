#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

namespace detail {
extern std::atomic<std::uint32_t> process_number;
}

/// A number that this process shares with none of the processes it was forked from: it tells whether a fork lies
/// between. As cheap as a load. Any thread.
[[nodiscard]] inline std::uint32_t process_number() noexcept {
  return detail::process_number.load(std::memory_order_relaxed);
}

}  // namespace weft
