#include "pace.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace train_gpt {

bool Pace::step_done(int done, TimePoint now) {
  constexpr int kOfLate = 50;
  int const counted = std::max(1, done - first_ - 1);
  std::chrono::duration<double> const took = now - last_step_;
  step_ = counted == 1 ? took : step_ + (took - step_) / std::min(counted, kOfLate);
  auto const tenth = [&](int step) { return static_cast<long>(step - first_) * 10 / (steps_ - first_); };
  bool const due = done == first_ + 1 || tenth(done) != tenth(done - 1) || now - last_line_ >= std::chrono::minutes(1);
  if (due) {
    last_line_ = now;
  }
  last_step_ = now;
  done_ = done;
  return due;
}

std::string describe(std::chrono::duration<double> time) {
  auto const seconds = static_cast<long>(time.count() + 0.5);
  if (seconds < 60) {
    return fmt::format("{}s", seconds);
  }
  if (seconds < 3600) {
    return fmt::format("{}m {:02}s", seconds / 60, seconds % 60);
  }
  if (seconds < 86400) {
    return fmt::format("{}h {:02}m", seconds / 3600, seconds % 3600 / 60);
  }
  return fmt::format("{}d {:02}h", seconds / 86400, seconds % 86400 / 3600);
}

}  // namespace train_gpt
