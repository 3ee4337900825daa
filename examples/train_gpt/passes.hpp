#pragma once

#include <span>

#include <weft/optimizer.hpp>

#include "gpt_model.hpp"
#include "step_times.hpp"

namespace train_gpt {

/// Forward and backward of `batch`; `clock`, which `tensors` may pause, adds to `times`. Returns the loss.
[[nodiscard]] inline float run_pass(GptModel& model, Batch const& batch, Tensors& tensors, float scale,
                                    ComputeClock& clock, StepTimes& times) {
  clock.begin(times.forward);
  float const loss = model.forward(batch, tensors);
  clock.end();
  clock.begin(times.backward);
  model.backward(batch, tensors, scale);
  clock.end();
  return loss;
}

/// A step's passes, whose gradients add up to those of their mean loss times `loss_scale`. `one_pass(i, pass)` makes
/// pass i by calling pass(), all but the last without communication.
template <typename OnePass>
void run_passes(GptModel& model, std::span<Batch const> batches, Tensors& tensors, float loss_scale,
                ComputeClock& clock, StepTimes& times, OnePass const& one_pass) {
  float const share = 1.0F / static_cast<float>(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    one_pass(i, [&] { times.loss += share * run_pass(model, batches[i], tensors, share * loss_scale, clock, times); });
  }
}

/// Updates `count` parameters in the order their gradients became ready, each as soon as its average is there. `ddp` is
/// a weft::DataParallel, or anything with its gradient(), finish_launching(), wait() and finish().
template <typename Ddp>
void update_as_averages_arrive(Ddp& ddp, weft::Optimizer& optimizer, std::size_t count, StepTimes& times) {
  using Clock = std::chrono::steady_clock;
  ddp.finish_launching();
  optimizer.begin_step();
  times.optimizer.reserve(count);
  for (std::size_t i = count; i-- > 0;) {
    ddp.wait(i);
    auto const start = Clock::now();
    optimizer.update(i, ddp.gradient(i));
    times.optimizer.push_back({start, Clock::now()});
  }
  ddp.finish();
}

}  // namespace train_gpt
