#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <weft/autotuner.hpp>
#include <weft/communicator.hpp>
#include <weft/training_checkpoint.hpp>

#include "gpt_model.hpp"
#include "local_tensors.hpp"
#include "options.hpp"
#include "run_record.hpp"
#include "step_control.hpp"

namespace train_gpt {

/// How ranks share the work of a step: what each keeps and what they send. Every member but traffic(), applied_steps(),
/// state_count() and control() is collective.
class Strategy {
 public:
  /// `device`: where gradients are.
  explicit Strategy(Options const& options, weft::Device device = {})
      : control_(options, device), compressor_(options.compressor()) {}
  virtual ~Strategy() = default;
  Strategy(Strategy const&) = delete;
  Strategy& operator=(Strategy const&) = delete;

  /// Forward and backward of each batch, of equal sizes, whose gradients add up; then the update.
  [[nodiscard]] virtual StepTimes step(std::span<Batch const> batches, double lr) = 0;
  /// What was communicated during the last step.
  [[nodiscard]] virtual std::vector<Traffic> traffic() const = 0;
  /// Scores of the byte that follows `text`, as GptModel has it. Between steps; all ranks ask alike.
  [[nodiscard]] virtual std::span<float const> next_byte_logits(std::span<std::uint8_t const> text) = 0;

  [[nodiscard]] virtual std::int64_t applied_steps() const = 0;  ///< those that did not overflow
  virtual void set_applied_steps(std::int64_t steps) = 0;
  /// Of tensor `index`, whole: the values that updates go into, and the optimizer's states. Setting comes before the
  /// first step, with equal values on all ranks.
  [[nodiscard]] virtual std::size_t state_count() const = 0;
  [[nodiscard]] virtual std::vector<float> values(std::size_t index) = 0;
  virtual void set_values(std::size_t index, std::span<float const> values) = 0;
  [[nodiscard]] virtual std::vector<float> state(std::size_t index, std::size_t which) = 0;
  virtual void set_state(std::size_t index, std::size_t which, std::span<float const> values) = 0;

  /// All of these to and from a checkpoint's folder, each rank its part; `parameters` are the model's. Loading comes
  /// before the first step.
  virtual void save(weft::CheckpointSaver& saver, std::span<weft::NamedParameter const> parameters,
                    weft::CheckpointInfo const& info) = 0;
  virtual void load(weft::Checkpoint const& checkpoint, weft::Communicator& world,
                    std::span<weft::NamedParameter const> parameters) = 0;

  /// What --autotune may try between steps.
  [[nodiscard]] virtual weft::TuningSpace tuning_space() {
    return {"nothing to tune", {{"as it is", [] {}}}};
  }
  /// What else is to be said after training, a line; or nothing.
  [[nodiscard]] virtual std::string report() const { return {}; }

  [[nodiscard]] StepControl& control() noexcept { return control_; }

 protected:
  /// What compresses gradients, for checkpoints; null if nothing does.
  [[nodiscard]] weft::GradientCompressor* compressor() noexcept { return compressor_ ? &*compressor_ : nullptr; }
  /// Of options, with that compressor.
  [[nodiscard]] weft::BucketerOptions bucketer(Options const& options) const {
    weft::BucketerOptions bucketer = options.bucketer();
    if (compressor_) bucketer.hook = compressor_->hook();
    return bucketer;
  }

 private:
  StepControl control_;
  std::optional<weft::GradientCompressor> compressor_;
};

/// options.strategy's, with the parameters' starting values. `model` must outlive it.
[[nodiscard]] std::unique_ptr<Strategy> make_strategy(weft::Communicator communicator, Options const& options,
                                                      GptModel& model);

#ifdef WEFT_WITH_CUDA
/// On this rank's GPU, the model too. @throws weft::Error{unsupported} where there is no GPU.
[[nodiscard]] std::unique_ptr<Strategy> make_on_device(weft::Communicator communicator, Options const& options,
                                                       GptParameters const& parameters);
#endif

/// `start`: those values, of options.parameter_type().
std::unique_ptr<Strategy> make_replicated(weft::Communicator communicator, Options const& options, GptModel& model,
                                          std::vector<weft::Buffer> start);
/// options.step_schedule's plan of the same, by a weft::PlanExecutor.
std::unique_ptr<Strategy> make_scheduled(weft::Communicator communicator, Options const& options, GptModel& model,
                                         std::vector<weft::Buffer> start);
std::unique_ptr<Strategy> make_zero(weft::Communicator communicator, Options const& options, GptModel& model,
                                    std::vector<weft::Buffer> start);
/// Makes the values itself, tensor by tensor: the model is never whole.
std::unique_ptr<Strategy> make_fully_sharded(weft::Communicator communicator, Options const& options, GptModel& model);

}  // namespace train_gpt
