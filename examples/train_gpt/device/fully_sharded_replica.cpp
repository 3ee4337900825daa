#include <weft/fully_sharded.hpp>

#include "device/device_replica.hpp"
#include "strategies/of_sharded.hpp"
#include "strategies/sharded_setup.hpp"
#include "strategies/unit_turns.hpp"

namespace train_gpt {
namespace {

weft::FullyShardedOptions fully_sharded_options_of(ReplicaSetup const& setup) {
  weft::FullyShardedOptions sharded =
      fully_sharded_options(setup.options, setup.parameters, setup.communicator.size(), setup.control);
  sharded.gradients = policy_on_device(setup.control);
  sharded.compute = setup.stream;
  sharded.timed = setup.buckets.timed;
  return sharded;
}

/// No rank ever has the whole model. A pass' stream waits for each unit where it is entered.
class FullyShardedReplica final : public OfSharded<DeviceReplica> {
 public:
  explicit FullyShardedReplica(ReplicaSetup const& setup)
      : OfSharded(setup.compressor),
        clock_(setup.clock),
        sharded_(setup.communicator, units_of(setup.parameters, setup.options, setup.stream.device()),
                 fully_sharded_options_of(setup)),
        turns_(sharded_) {}

  void enter(Pass pass, std::size_t unit) override {
    clock_.pause([&] { turns_.enter(pass, unit); });
  }
  void leave(Pass pass, std::size_t unit) override { turns_.leave(pass, unit); }
  [[nodiscard]] weft::BufferView parameter(std::size_t index) override { return sharded_.parameter(index); }
  [[nodiscard]] weft::BufferView gradient(std::size_t index) override { return sharded_.gradient(index); }
  void gradient_done(std::size_t /*index*/) override {}  // a unit is sent when it is left
  [[nodiscard]] float keep() const override { return turns_.adds() ? 1.0F : 0.0F; }
  void without_sending(std::function<void()> const& pass) override { sharded_.no_sync(pass); }
  void enqueue_update(float const* lr) override { sharded_.step({.lr = lr}); }
  [[nodiscard]] std::vector<Traffic> traffic(weft::Event const& origin, weft::TimePoint at) const override {
    return {{"all_gather", sharded_.gathers_since(origin, at)},
            {"reduce_scatter", sharded_.reductions_since(origin, at)}};
  }
  [[nodiscard]] std::vector<weft::Interval> updates(weft::Event const& origin, weft::TimePoint at) const override {
    return sharded_.updates_since(origin, at);
  }
  void join() override { sharded_.wait_gathers(); }

 private:
  [[nodiscard]] weft::ShardedOptimizer& sharded() override { return sharded_; }
  [[nodiscard]] weft::ShardedOptimizer const& sharded() const override { return sharded_; }

  DeviceClock& clock_;
  weft::FullySharded sharded_;
  UnitTurns turns_;
};

}  // namespace

std::unique_ptr<DeviceReplica> make_fully_sharded_replica(ReplicaSetup const& setup) {
  return std::make_unique<FullyShardedReplica>(setup);
}

}  // namespace train_gpt
