#pragma once

#include <utility>
#include <vector>

#include <weft/event.hpp>
#include <weft/overlap.hpp>
#include <weft/stream.hpp>

#include "step_times.hpp"

namespace train_gpt {

/// When a step's parts are computed, in the GPU's time: events, which are read once the GPU is through with the step.
class DeviceClock {
 public:
  explicit DeviceClock(weft::Stream stream) : stream_(std::move(stream)) { origin_.record(stream_); }

  /// Of a step that is recorded in a graph nothing is known.
  void set_running(bool running) noexcept { running_ = running; }
  void begin_step() {
    parts_.clear();
    if (!running_) return;
    before_ = std::exchange(origin_, weft::Event());
    origin_.record(stream_);
  }

  using Part = std::vector<weft::Interval> StepTimes::*;
  /// What follows on the stream is computed, until stop().
  void start(Part part) {
    if (!running_) return;
    parts_.push_back({part, {}, {}});
    parts_.back().from.record(stream_);
  }
  void stop() {
    if (!running_ || parts_.empty() || parts_.back().stopped) return;
    parts_.back().to.record(stream_);
    parts_.back().stopped = true;
  }

  /// Runs `wait`, by which the stream comes to wait for others: meanwhile nothing is computed.
  template <typename Wait>
  void pause(Wait&& wait) {
    bool const computes = running_ && !parts_.empty() && !parts_.back().stopped;
    if (computes) stop();
    wait();
    if (computes) start(parts_.back().part);
  }

  /// When the step before this one began, and what the host's clock then said, by that of this step's start: nothing
  /// that is of this step, or was sent for it, came before.
  [[nodiscard]] weft::Event const& origin() const noexcept { return before_; }
  [[nodiscard]] weft::TimePoint origin_time(StepTimes const& times) const {
    return times.start - before_.elapsed_until(origin_);
  }
  /// The stretches that were computed: this step's origin happened when the host began it.
  void read(StepTimes& times) const {
    for (Stretch const& one : parts_) {
      (times.*one.part)
          .push_back({times.start + origin_.elapsed_until(one.from), times.start + origin_.elapsed_until(one.to)});
    }
  }

 private:
  struct Stretch {
    Part part;
    weft::Event from, to;
    bool stopped = false;
  };

  weft::Stream stream_;
  bool running_ = true;
  weft::Event before_, origin_;
  std::vector<Stretch> parts_;
};

}  // namespace train_gpt
