#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <weft/sharded_optimizer.hpp>
#include <weft/training_checkpoint.hpp>

namespace train_gpt {

/// What a Strategy, or a DeviceReplica, says of values and states where a sharded optimizer has them.
template <typename Base>
class OfSharded : public Base {
 public:
  using Base::Base;

  void set_applied_steps(std::int64_t steps) override { sharded().set_step_count(steps); }
  [[nodiscard]] std::size_t state_count() const override { return sharded().state_names(0).size(); }
  [[nodiscard]] std::vector<float> values(std::size_t index) override { return sharded().master(index); }
  void set_values(std::size_t index, std::span<float const> values) override { sharded().set_parameter(index, values); }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) override {
    return sharded().state(index, which);
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    sharded().set_state(index, which, values);
  }

  void save(weft::CheckpointSaver& saver, std::span<weft::NamedParameter const> parameters,
            weft::CheckpointInfo const& info) override {
    weft::save(saver, sharded(), parameters, info, this->compressor());
  }
  void load(weft::Checkpoint const& checkpoint, weft::Communicator& world,
            std::span<weft::NamedParameter const> parameters) override {
    weft::load(checkpoint, world, sharded(), parameters, this->compressor());
  }

 protected:
  [[nodiscard]] virtual weft::ShardedOptimizer& sharded() = 0;
  [[nodiscard]] virtual weft::ShardedOptimizer const& sharded() const = 0;
};

}  // namespace train_gpt
