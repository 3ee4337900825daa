#pragma once

#include <optional>
#include <vector>

#include <weft/event.hpp>
#include <weft/overlap.hpp>
#include <weft/stream.hpp>

#include "step_times.hpp"

namespace train_gpt {

/// When a step's parts are computed, in the GPU's time: events, which are read once the GPU is through with the step.
class DeviceClock {
 public:
  explicit DeviceClock(weft::Stream stream) : stream_(std::move(stream)) {}

  /// Of a step that is recorded in a graph nothing is known.
  void set_running(bool running) noexcept { running_ = running; }
  void begin_step() {
    parts_.clear();
    if (running_) origin_.record(stream_);
  }

  using Part = std::vector<weft::Interval> StepTimes::*;
  /// What follows on the stream is computed, until stop().
  void start(Part part) {
    if (!running_) return;
    parts_.push_back({part, {}, {}});
    parts_.back().from.record(stream_);
  }
  void stop() {
    if (running_) parts_.back().to.record(stream_);
  }

  /// What times are counted from: it happened when the host began the step.
  [[nodiscard]] weft::Event const& origin() const noexcept { return origin_; }
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
  };

  weft::Stream stream_;
  bool running_ = true;
  weft::Event origin_;
  std::vector<Stretch> parts_;
};

}  // namespace train_gpt
