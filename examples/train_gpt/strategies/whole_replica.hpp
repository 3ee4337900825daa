#pragma once

#include <algorithm>
#include <utility>

#include <weft/convert.hpp>

#include "strategies/strategy.hpp"

namespace train_gpt {

/// What strategies share in which every rank keeps and updates everything.
class WholeReplica : public Strategy {
 public:
  WholeReplica(weft::Communicator communicator, Options const& options, GptModel& model,
               std::vector<weft::Buffer> start)
      : Strategy(options),
        communicator_(std::move(communicator)),
        model_(model),
        memory_(std::move(start)),
        parameters_(views_of(memory_)),
        optimizer_(parameters_, options.optimizer_options(), options.optimizer_settings()) {}

  [[nodiscard]] std::int64_t applied_steps() const override { return optimizer_.step_count(); }
  void set_applied_steps(std::int64_t steps) override { optimizer_.set_step_count(steps); }
  [[nodiscard]] std::size_t state_count() const override { return optimizer_.state_names(0).size(); }
  [[nodiscard]] std::vector<float> values(std::size_t index) override {
    auto const* const from = static_cast<float const*>(optimizer_.master(index).data);
    return {from, from + parameters_[index].count};
  }
  void set_values(std::size_t index, std::span<float const> values) override {
    std::copy(values.begin(), values.end(), static_cast<float*>(optimizer_.master(index).data));
    if (parameters_[index].dtype != weft::DataType::f32) weft::convert(values, parameters_[index]);
  }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) override {
    return optimizer_.state(index, which);
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    optimizer_.set_state(index, which, values);
  }

  void save(weft::CheckpointSaver& saver, std::span<weft::NamedParameter const> parameters,
            weft::CheckpointInfo const& info) override {
    weft::save(saver, communicator_, optimizer_, parameters, info, compressor());
  }
  void load(weft::Checkpoint const& checkpoint, weft::Communicator& world,
            std::span<weft::NamedParameter const> parameters) override {
    weft::load(checkpoint, world, optimizer_, parameters, compressor());
  }

 protected:
  weft::Communicator communicator_;
  GptModel& model_;
  std::vector<weft::Buffer> memory_;
  std::vector<weft::BufferView> parameters_;
  weft::Optimizer optimizer_;
};

}  // namespace train_gpt
