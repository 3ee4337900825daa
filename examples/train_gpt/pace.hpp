#pragma once

#include <chrono>
#include <string>

namespace train_gpt {

/// How a run gets on: when a log is due a line, and how long the rest will take. Pure; the time is passed in.
class Pace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `first` steps are done already, `steps` is where the run ends, and it starts at `now`.
  Pace(int first, int steps, TimePoint now)
      : first_(first), steps_(steps), start_(now), last_step_(now), last_line_(now) {}

  /// `done` steps are done, one more than at the last call. True when a log should show it: after the first step, at
  /// every tenth of the way, and once a minute.
  [[nodiscard]] bool step_done(int done, TimePoint now);

  /// What the remaining steps will take if they go on like the last fifty or so; the first, which warms up, counts for
  /// nothing once there are others.
  [[nodiscard]] std::chrono::duration<double> left() const noexcept { return step_ * (steps_ - done_); }
  [[nodiscard]] std::chrono::duration<double> elapsed() const noexcept { return last_step_ - start_; }

 private:
  int first_;
  int steps_;
  int done_ = 0;
  TimePoint start_;
  TimePoint last_step_;
  TimePoint last_line_;
  std::chrono::duration<double> step_{};  ///< of late, on average
};

/// "42s", "2m 05s", "1h 03m", "2d 04h".
[[nodiscard]] std::string describe(std::chrono::duration<double> time);

}  // namespace train_gpt
