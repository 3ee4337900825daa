#include <weft/zero_optimizer.hpp>

#include "device/device_replica.hpp"
#include "local_tensors.hpp"

namespace train_gpt {
namespace {

weft::ZeroOptions zero_options(ReplicaSetup const& setup) {
  weft::ZeroOptions zero;
  zero.stage = setup.options.strategy == "zero1" ? weft::ZeroStage::optimizer_states : weft::ZeroStage::gradients;
  zero.optimizer = setup.options.optimizer_settings();
  zero.gradients = setup.control.policy();
  // It tells whether a step was skipped, also where nothing is scaled.
  if (setup.control.needs_norm()) zero.gradients.scaler = &setup.control.scaler();
  zero.buckets = setup.buckets;
  zero.buckets.rebuild = setup.options.resume.empty();  // states are loaded into shards that stay
  return zero;
}

/// Parameters travel after a step; a pass waits, on the stream, for each where it first needs it.
class ZeroReplica final : public DeviceReplica {
 public:
  explicit ZeroReplica(ReplicaSetup const& setup)
      : stream_(setup.stream),
        zero_(setup.communicator, {{views_of(start_on_device(setup)), setup.options.optimizer_options()}},
              zero_options(setup)) {}

  [[nodiscard]] weft::BufferView parameter(std::size_t index) override {
    if (!joined_) zero_.wait_parameter(index);
    return zero_.parameter(index);
  }
  [[nodiscard]] weft::BufferView gradient(std::size_t index) override { return zero_.gradient(index); }
  void gradient_done(std::size_t index) override { zero_.mark_ready(index); }
  void without_sending(std::function<void()> const& pass) override { zero_.no_sync(pass); }
  void enqueue_update(float const* lr) override {
    zero_.step({.lr = lr, .stream = &stream_});
    joined_ = false;
  }
  void join() override {
    zero_.wait_parameters();
    joined_ = true;
  }

  void set_applied_steps(std::int64_t steps) override { zero_.set_step_count(steps); }
  [[nodiscard]] std::size_t state_count() const override { return zero_.state_names(0).size(); }
  [[nodiscard]] std::vector<float> values(std::size_t index) override { return zero_.master(index); }
  void set_values(std::size_t index, std::span<float const> values) override { zero_.set_parameter(index, values); }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) override {
    return zero_.state(index, which);
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    zero_.set_state(index, which, values);
  }

 private:
  weft::Stream stream_;
  weft::ZeroOptimizer zero_;
  bool joined_ = false;  ///< all parameters have arrived; a graph cannot wait for what it did not enqueue
};

}  // namespace

std::unique_ptr<DeviceReplica> make_zero_replica(ReplicaSetup const& setup) {
  return std::make_unique<ZeroReplica>(setup);
}

}  // namespace train_gpt
