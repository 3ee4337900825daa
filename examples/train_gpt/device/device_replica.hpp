#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <weft/communicator.hpp>
#include <weft/stream.hpp>
#include <weft/training_checkpoint.hpp>

#include "device/device_clock.hpp"
#include "device/device_tensors.hpp"
#include "gpt_parameters.hpp"
#include "options.hpp"
#include "run_record.hpp"
#include "step_control.hpp"

namespace train_gpt {

/// A whole model's parameters and gradients on a GPU, and how ranks share the update of them. What enqueues does so on
/// the stream that it was made for, and can be recorded in a CUDA graph from the second step on.
class DeviceReplica : public DeviceTensors {
 public:
  /// `compressor`: what gradients are compressed by, for checkpoints; null if nothing does.
  explicit DeviceReplica(weft::GradientCompressor* compressor) : compressor_(compressor) {}

  /// Gradients add to those of the passes before.
  void set_accumulating(bool accumulating) noexcept { accumulating_ = accumulating; }
  [[nodiscard]] float keep() const override { return accumulating_ ? 1.0F : 0.0F; }

  /// Runs a pass whose gradients only add up.
  virtual void without_sending(std::function<void()> const& pass) = 0;
  /// Ends a step's passes: reduces what is left, and updates, with the learning rate that `lr` points to when it runs.
  /// Starts the clock of the update, which the caller stops, unless updates() has the times.
  /// Where the control needs a norm, its scaler's found_inf is set if the step is skipped.
  virtual void enqueue_update(float const* lr) = 0;
  /// What was communicated in the last step, which the GPU is through with: `origin` was reached at `at`. None where it
  /// is not timed.
  [[nodiscard]] virtual std::vector<Traffic> traffic(weft::Event const& origin, weft::TimePoint at) const {
    static_cast<void>(origin);
    static_cast<void>(at);
    return {};
  }
  /// As traffic(): when the last step updated, between waiting for gradients.
  [[nodiscard]] virtual std::vector<weft::Interval> updates(weft::Event const& origin, weft::TimePoint at) const {
    static_cast<void>(origin);
    static_cast<void>(at);
    return {};
  }
  /// What is still under way elsewhere ends before what is enqueued from now on.
  virtual void join() {}

  // As Strategy has them. They wait.
  virtual void set_applied_steps(std::int64_t steps) = 0;
  [[nodiscard]] virtual std::size_t state_count() const = 0;
  [[nodiscard]] virtual std::vector<float> values(std::size_t index) = 0;
  virtual void set_values(std::size_t index, std::span<float const> values) = 0;
  [[nodiscard]] virtual std::vector<float> state(std::size_t index, std::size_t which) = 0;
  virtual void set_state(std::size_t index, std::size_t which, std::span<float const> values) = 0;
  virtual void save(weft::CheckpointSaver& saver, std::span<weft::NamedParameter const> parameters,
                    weft::CheckpointInfo const& info) = 0;
  virtual void load(weft::Checkpoint const& checkpoint, weft::Communicator& world,
                    std::span<weft::NamedParameter const> parameters) = 0;

 protected:
  [[nodiscard]] weft::GradientCompressor* compressor() noexcept { return compressor_; }

 private:
  weft::GradientCompressor* compressor_;
  bool accumulating_ = false;
};

/// What a replica is made from; all but `options` and `parameters` outlive it.
struct ReplicaSetup {
  weft::Communicator& communicator;
  Options const& options;
  GptParameters const& parameters;
  weft::BucketerOptions buckets;  ///< with the stream as `compute`
  StepControl& control;
  weft::Stream stream;
  DeviceClock& clock;
  weft::GradientCompressor* compressor = nullptr;  ///< what the buckets' hook is of, if they have one
};

/// Everything on every rank.
[[nodiscard]] std::unique_ptr<DeviceReplica> make_ddp_replica(ReplicaSetup const& setup);
/// Optimizer states are sharded, under zero2 gradients too.
[[nodiscard]] std::unique_ptr<DeviceReplica> make_zero_replica(ReplicaSetup const& setup);

/// Parameters are sharded too: of each unit the whole is there while a pass uses it.
[[nodiscard]] std::unique_ptr<DeviceReplica> make_fully_sharded_replica(ReplicaSetup const& setup);

/// What a sharded optimizer on a GPU does to gradients.
[[nodiscard]] weft::GradientPolicy policy_on_device(StepControl& control);

/// Starting values in GPU memory, of options.parameter_type(). Waits.
[[nodiscard]] std::vector<weft::Buffer> start_on_device(ReplicaSetup const& setup);

}  // namespace train_gpt
