#pragma once

#include <chrono>
#include <vector>

#include <weft/optimizer.hpp>
#include <weft/overlap.hpp>

#include "gpt_model.hpp"

namespace train_gpt {

/// What one step was made of; steady_clock, which all ranks of a host share.
struct StepTimes {
  weft::TimePoint start;
  std::vector<weft::Interval> forward;  ///< between waits for parameters
  weft::Interval backward;
  std::vector<weft::Interval> optimizer;  ///< updates, between waits for what neither backward nor they have hidden
  weft::TimePoint end;
  float loss = 0.0F;  ///< this rank's share of the batch

  [[nodiscard]] weft::Interval step() const noexcept { return {start, end}; }
  [[nodiscard]] std::vector<weft::Interval> compute() const {
    std::vector<weft::Interval> all(forward);
    all.push_back(backward);
    all.insert(all.end(), optimizer.begin(), optimizer.end());
    return all;
  }
};

/// One training step. `ddp` is a weft::DataParallel, or anything with its gradient(), mark_ready(), finish_launching(),
/// wait() and finish(). Parameters are updated in the order their gradients became ready, each as soon as its average
/// is there.
template <typename DataParallelLike>
[[nodiscard]] StepTimes train_step(GptModel& model, DataParallelLike& ddp, weft::Optimizer& optimizer,
                                   Batch const& batch) {
  using Clock = std::chrono::steady_clock;
  StepTimes times;
  times.start = Clock::now();
  times.loss = model.forward(batch);
  times.backward.start = Clock::now();
  times.forward.push_back({times.start, times.backward.start});
  model.backward(
      batch, [&](std::size_t i) { return ddp.gradient(i); }, [&](std::size_t i) { ddp.mark_ready(i); });
  times.backward.end = Clock::now();
  ddp.finish_launching();
  optimizer.begin_step();
  times.optimizer.reserve(model.parameter_names().size());
  for (std::size_t i = model.parameter_names().size(); i-- > 0;) {
    ddp.wait(i);
    auto const start = Clock::now();
    optimizer.update(i, ddp.gradient(i));
    times.optimizer.push_back({start, Clock::now()});
  }
  ddp.finish();
  times.end = Clock::now();
  return times;
}

/// Linear warm-up over the first 10 steps, constant after: does not depend on how many steps are planned, so a resumed
/// run agrees.
[[nodiscard]] inline float learning_rate(float lr, int step) noexcept {
  constexpr int kWarmUp = 10;
  return step < kWarmUp ? lr * static_cast<float>(step + 1) / kWarmUp : lr;
}

}  // namespace train_gpt
