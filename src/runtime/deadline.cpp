#include "runtime/deadline.hpp"

#include <sys/prctl.h>

#include <cerrno>
#include <ctime>

#include "runtime/timeline.hpp"

namespace weft {

void sleep_until(std::chrono::steady_clock::time_point deadline) noexcept {
  if (auto* const timeline = Timeline::current()) {
    while (timeline->now() < deadline) timeline->wait(&deadline, deadline);
    return;
  }
  auto const ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
  if (ns <= 0) return;
  timespec until{};
  until.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  until.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  // steady_clock is CLOCK_MONOTONIC in libstdc++ and libc++. The deadline is absolute, so resuming after a signal loses
  // nothing.
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void use_precise_sleep() noexcept {
  if (Timeline::current() != nullptr) return;
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

}  // namespace weft
