#include <algorithm>
#include <vector>

#include <weft/zero_optimizer.hpp>

#include "device/device_replica.hpp"
#include "local_tensors.hpp"
#include "strategies/of_sharded.hpp"
#include "strategies/sharded_setup.hpp"

namespace train_gpt {
namespace {

weft::ZeroOptions zero_options_of(ReplicaSetup const& setup) {
  weft::ZeroOptions zero = zero_options(setup.options, setup.control, setup.buckets);
  zero.gradients = policy_on_device(setup.control);
  return zero;
}

/// Parameters travel after a step; a pass waits, on the stream, for each where it first needs it.
class ZeroReplica final : public OfSharded<DeviceReplica> {
 public:
  explicit ZeroReplica(ReplicaSetup const& setup)
      : OfSharded(setup.compressor),
        clock_(setup.clock),
        stream_(setup.stream),
        zero_(setup.communicator, {{views_of(start_on_device(setup)), setup.options.optimizer_options()}},
              zero_options_of(setup)),
        arrived_(zero_.parameter_count()) {}

  [[nodiscard]] weft::BufferView parameter(std::size_t index) override {
    if (arrived_[index] == 0) clock_.pause([&] { zero_.wait_parameter(index); });
    arrived_[index] = 1;
    return zero_.parameter(index);
  }
  [[nodiscard]] weft::BufferView gradient(std::size_t index) override { return zero_.gradient(index); }
  void gradient_done(std::size_t index) override { zero_.mark_ready(index); }
  void without_sending(std::function<void()> const& pass) override { zero_.no_sync(pass); }
  void enqueue_update(float const* lr) override {
    zero_.step({.lr = lr, .stream = &stream_});
    std::fill(arrived_.begin(), arrived_.end(), 0);
  }
  [[nodiscard]] std::vector<Traffic> traffic(weft::Event const& origin, weft::TimePoint at) const override {
    return {{"all_gather", zero_.gathers_since(origin, at)}, {"reduce_scatter", zero_.reductions_since(origin, at)}};
  }
  [[nodiscard]] std::vector<weft::Interval> updates(weft::Event const& origin, weft::TimePoint at) const override {
    return zero_.updates_since(origin, at);
  }
  void join() override { zero_.wait_parameters(); }

 private:
  [[nodiscard]] weft::ShardedOptimizer& sharded() override { return zero_; }
  [[nodiscard]] weft::ShardedOptimizer const& sharded() const override { return zero_; }

  DeviceClock& clock_;
  weft::Stream stream_;
  weft::ZeroOptimizer zero_;
  std::vector<char> arrived_;  ///< by tensor, since the last update
};

}  // namespace

// The scaler tells whether a step was skipped, also where nothing is scaled.
weft::GradientPolicy policy_on_device(StepControl& control) {
  weft::GradientPolicy policy = control.policy();
  if (control.needs_norm()) policy.scaler = &control.scaler();
  return policy;
}

std::unique_ptr<DeviceReplica> make_zero_replica(ReplicaSetup const& setup) {
  return std::make_unique<ZeroReplica>(setup);
}

}  // namespace train_gpt
