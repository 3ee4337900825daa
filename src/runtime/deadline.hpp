#pragma once

#include <chrono>

namespace weft {

/// Sleeps until `deadline` on the monotonic clock (clock_nanosleep, absolute); returns at once when it has passed.
void sleep_until(std::chrono::steady_clock::time_point deadline) noexcept;

/// Sets the calling thread's timer slack to 1 ns, so that short sleeps end on time.
void use_precise_sleep() noexcept;

}  // namespace weft
