#pragma once

#include <memory>
#include <vector>

#include <weft/communicator.hpp>

#include "checkpoint.hpp"
#include "gpt_model.hpp"
#include "options.hpp"
#include "run_record.hpp"

namespace train_gpt {

/// How ranks share the work of a step: what each keeps and what they send. Every member but traffic() is collective.
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Puts a checkpoint's moments and step count back, before the first step.
  virtual void restore(Checkpoint const& checkpoint) = 0;
  /// Forward, backward and update.
  [[nodiscard]] virtual StepTimes step(Batch const& batch, float lr) = 0;
  /// What was communicated during the last step.
  [[nodiscard]] virtual std::vector<Traffic> traffic() const = 0;
  /// After the last step: the model's parameters are those of all steps.
  virtual void finish() {}
  /// Moment `which` of tensor `index`, whole on every rank.
  [[nodiscard]] virtual std::vector<float> moment(std::size_t index, std::size_t which) = 0;
};

/// options.strategy's. `model` has its starting values; under zero1 and zero2 it computes with the strategy's memory
/// from now on, and only as long as that lives.
[[nodiscard]] std::unique_ptr<Strategy> make_strategy(weft::Communicator communicator, Options const& options,
                                                      GptModel& model);

}  // namespace train_gpt
