#pragma once

#include <array>
#include <chrono>

#include <weft/adamw.hpp>
#include <weft/overlap.hpp>

#include "gpt_model.hpp"

namespace train_gpt {

/// What one step was made of; steady_clock, which all ranks of a host share.
struct StepTimes {
  weft::Interval forward;
  weft::Interval backward;
  weft::Interval wait;  ///< for communication that backward did not hide
  weft::Interval optimizer;
  float loss = 0.0F;  ///< this rank's share of the batch

  [[nodiscard]] weft::Interval step() const noexcept { return {forward.start, optimizer.end}; }
  [[nodiscard]] std::array<weft::Interval, 3> compute() const noexcept { return {forward, backward, optimizer}; }
};

/// One training step. `ddp` is a weft::DataParallel, or anything with its gradient(), mark_ready() and finish().
template <typename DataParallelLike>
[[nodiscard]] StepTimes train_step(GptModel& model, DataParallelLike& ddp, weft::AdamW& optimizer, Batch const& batch) {
  using Clock = std::chrono::steady_clock;
  StepTimes times;
  times.forward.start = Clock::now();
  times.loss = model.forward(batch);
  times.forward.end = times.backward.start = Clock::now();
  model.backward(
      batch, [&](std::size_t i) { return ddp.gradient(i); }, [&](std::size_t i) { ddp.mark_ready(i); });
  times.backward.end = times.wait.start = Clock::now();
  ddp.finish();
  times.wait.end = times.optimizer.start = Clock::now();
  optimizer.begin_step();
  for (std::size_t i = 0; i < model.parameter_names().size(); ++i) {
    optimizer.update(i, ddp.gradient(i));
  }
  times.optimizer.end = Clock::now();
  return times;
}

/// Linear warm-up over the first 10 steps, constant after: does not depend on how many steps are planned, so a resumed
/// run agrees.
[[nodiscard]] inline float learning_rate(float lr, int step) noexcept {
  constexpr int kWarmUp = 10;
  return step < kWarmUp ? lr * static_cast<float>(step + 1) / kWarmUp : lr;
}

}  // namespace train_gpt
