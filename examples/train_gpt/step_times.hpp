#pragma once

#include <chrono>
#include <vector>

#include <weft/overlap.hpp>

namespace train_gpt {

/// What one step was made of; steady_clock, which all ranks of a host share.
struct StepTimes {
  weft::TimePoint start;
  std::vector<weft::Interval> forward;  ///< between waits for parameters
  std::vector<weft::Interval> backward;
  std::vector<weft::Interval> optimizer;  ///< updates, between waits for what neither backward nor they have hidden
  weft::TimePoint end;
  float loss = 0.0F;  ///< this rank's share of the batch

  [[nodiscard]] weft::Interval step() const noexcept { return {start, end}; }
  [[nodiscard]] std::vector<weft::Interval> compute() const {
    std::vector<weft::Interval> all(forward);
    all.insert(all.end(), backward.begin(), backward.end());
    all.insert(all.end(), optimizer.begin(), optimizer.end());
    return all;
  }
};

/// Records when something is computed. Never allocates once `intervals` has room.
class ComputeClock {
 public:
  void begin(std::vector<weft::Interval>& intervals) {
    intervals_ = &intervals;
    start_ = Clock::now();
  }
  void end() { intervals_->push_back({start_, Clock::now()}); }
  /// Computation stops for `wait`.
  template <typename Wait>
  void pause(Wait&& wait) {
    end();
    wait();
    start_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<weft::Interval>* intervals_ = nullptr;
  weft::TimePoint start_;
};

}  // namespace train_gpt
