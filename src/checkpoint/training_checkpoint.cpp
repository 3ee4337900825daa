#include "weft/training_checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint/residuals.hpp"
#include "checkpoint/tensor_type.hpp"
#include "checkpoint/together.hpp"
#include "kernels/cpu/optim/gradients.hpp"
#include "weft/convert.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

std::string state_name(std::string const& parameter, std::string_view state) {
  return fmt::format("optimizer.{}.{}", parameter, state);
}

[[noreturn]] void bad(std::string const& name, std::string const& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("training checkpoint: parameter {}: {}", name, what));
}

std::size_t elements_of(NamedParameter const& parameter) {
  auto const count = count_of(parameter.shape, sizeof(float));
  if (!count) bad(parameter.name, "its shape has more elements than memory");
  return *count;
}

std::string text_of(std::vector<std::size_t> const& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// A save of a model that has diverged must not replace the last one of a model that had not.
void refuse_not_finite(std::string const& name, std::vector<float> const& values, std::size_t begin) {
  if (kernels::measure_gradient(values.data(), values.size(), DataType::f32, 1).finite) return;
  auto const at = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  throw Error(ErrorCode::invalid_argument,
              fmt::format("training checkpoint: {}: element {} is {}: the training has diverged; nothing was written, "
                          "go on from the save before",
                          name, begin + static_cast<std::size_t>(at - values.begin()),
                          std::isnan(*at) ? "not a number" : "infinite"));
}

/// Presents an Optimizer, which is whole on every rank, as a strategy whose shards are everything.
class Whole {
 public:
  explicit Whole(Optimizer& optimizer) : optimizer_(optimizer) {}

  [[nodiscard]] std::size_t parameter_count() const { return optimizer_.parameter_count(); }
  [[nodiscard]] std::size_t element_count(std::size_t index) const { return optimizer_.parameter(index).count; }
  [[nodiscard]] ShardRange shard(std::size_t index) const { return {0, element_count(index)}; }
  [[nodiscard]] std::span<std::string_view const> state_names(std::size_t index) const {
    return optimizer_.state_names(index);
  }
  [[nodiscard]] std::vector<float> state_shard(std::size_t index, std::size_t which) const {
    return optimizer_.state(index, which);
  }
  [[nodiscard]] std::vector<float> master_shard(std::size_t index) const {
    BufferView const master = optimizer_.master(index);
    std::vector<float> values(master.count);
    convert(master, std::span(values));
    return values;
  }
  void set_state_shard(std::size_t index, std::size_t which, std::span<float const> values) {
    optimizer_.set_state(index, which, values);
  }
  void set_master_shard(std::size_t index, std::span<float const> values) {
    convert(values, optimizer_.master(index));
    if (optimizer_.master(index).data != optimizer_.parameter(index).data) convert(values, optimizer_.parameter(index));
  }
  [[nodiscard]] std::size_t group_count() const { return optimizer_.group_count(); }
  [[nodiscard]] OptimizerOptions const& options(std::size_t group) const { return optimizer_.options(group); }
  void share_parameters() {}
  void set_step_count(std::int64_t step) { optimizer_.set_step_count(step); }

 private:
  Optimizer& optimizer_;
};

template <typename Strategy>
void check_parameters(Strategy const& strategy, std::span<NamedParameter const> parameters) {
  if (parameters.size() != strategy.parameter_count()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("training checkpoint: {} parameters are named, the strategy has {}", parameters.size(),
                            strategy.parameter_count()));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::size_t const named = elements_of(parameters[i]);
    if (named != strategy.element_count(i)) {
      bad(parameters[i].name, fmt::format("shape {} is {} elements, the strategy's parameter {} has {}",
                                          text_of(parameters[i].shape), named, i, strategy.element_count(i)));
    }
  }
}

// Checks that names are unique: a state's name may be another parameter's.
void check_names(std::span<CheckpointTensor const> tensors) {
  std::set<std::string_view> names;
  for (CheckpointTensor const& one : tensors) {
    if (!names.insert(one.name).second) bad(one.name, "the checkpoint would have two tensors of this name");
  }
}

// This rank's ranges of all parameters and states, for a save. Each one's values are made only when the saver copies
// them.
template <typename Strategy>
std::vector<CheckpointTensor> tensors_of(Strategy& strategy, std::span<NamedParameter const> parameters) {
  check_parameters(strategy, parameters);
  std::vector<CheckpointTensor> tensors;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    NamedParameter const& named = parameters[i];
    ShardRange const mine = strategy.shard(i);
    ConstBufferView const values(nullptr, mine.count, DataType::f32);
    auto const add = [&](std::string const& name, auto const& make) {
      tensors.push_back(
          {name, named.shape, mine.first, values, [=, begin = mine.first](std::size_t first, BufferView const& to) {
             std::vector<float> const all = make();
             refuse_not_finite(name, all, begin);
             std::memcpy(to.data, all.data() + (first - begin), to.bytes());
           }});
    };
    add(named.name, [&strategy, i] { return strategy.master_shard(i); });
    for (std::size_t which = 0; which < strategy.state_names(i).size(); ++which) {
      add(state_name(named.name, strategy.state_names(i)[which]),
          [&strategy, i, which] { return strategy.state_shard(i, which); });
    }
  }
  check_names(tensors);
  return tensors;
}

std::vector<CheckpointTensor> with_residuals(std::vector<CheckpointTensor> tensors,
                                             GradientCompressor const* compressor,
                                             std::span<NamedParameter const> parameters,
                                             Communicator const& communicator) {
  if (compressor == nullptr) return tensors;
  for (CheckpointTensor& one : residuals_of(*compressor, parameters, communicator.rank(), communicator.size())) {
    tensors.push_back(std::move(one));
  }
  check_names(tensors);
  return tensors;
}

std::vector<float> read_range(Checkpoint const& checkpoint, std::string const& tensor, ShardRange const& mine) {
  std::vector<float> values(mine.count);
  checkpoint.read({tensor, mine.first, std::span(values)});
  return values;
}

// The names of all groups' optimizers, each once: parameters may have moved to other groups.
std::string names_of(std::span<OptimizerOptions const> groups) {
  std::set<std::string_view> names;
  for (OptimizerOptions const& group : groups) names.insert(name_of(group));
  return fmt::format("{}", fmt::join(names, " and "));
}

template <typename Strategy>
std::vector<OptimizerOptions> options_of(Strategy const& strategy) {
  std::vector<OptimizerOptions> groups;
  for (std::size_t group = 0; group < strategy.group_count(); ++group) groups.push_back(strategy.options(group));
  return groups;
}

// Refuses another optimizer's states: even under equal names they may mean something else.
template <typename Strategy>
void check_optimizer(CheckpointInfo const& info, Strategy const& strategy) {
  std::string const saved = names_of(info.optimizer);
  std::string const here = names_of(options_of(strategy));
  if (saved.empty() || saved == here) return;  // a save of tensors alone names none
  throw Error(ErrorCode::invalid_argument,
              fmt::format("training checkpoint: has the states of {}, the optimizer here is {}; continue with {}",
                          saved, here, saved));
}

// Refuses a checkpoint with tensors that are not known here. Only where it is asked for may a model go on with fewer
// layers, or an optimizer lose states.
void check_left_out(Checkpoint const& checkpoint, std::set<std::string, std::less<>> const& known) {
  std::string_view first;
  std::size_t count = 0;
  for (Checkpoint::Tensor const& tensor : checkpoint.tensors()) {
    if (known.contains(tensor.name)) continue;
    if (count++ == 0) first = tensor.name;
  }
  if (count == 0) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("training checkpoint: {} has tensor {}{}, which is no parameter here and no state of one; "
                  "name all parameters that were saved, or leave it out with LoadOptions::partial",
                  checkpoint.folder().string(), first, count == 1 ? "" : fmt::format(" and {} more", count - 1)));
}

// Runs before anything is read.
template <typename Strategy>
void check_tensors(Checkpoint const& checkpoint, Strategy const& strategy, std::span<NamedParameter const> parameters,
                   LoadOptions const& options) {
  std::set<std::string, std::less<>> known;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto const need = [&](std::string tensor) {
      Checkpoint::Tensor const* const found = checkpoint.find(tensor);
      if (found == nullptr) {
        bad(parameters[i].name,
            fmt::format("tensor {} is not in the checkpoint {}", tensor, checkpoint.folder().string()));
      }
      if (found->shape != parameters[i].shape) {
        bad(parameters[i].name, fmt::format("has shape {}, the checkpoint's {} has {}", text_of(parameters[i].shape),
                                            tensor, text_of(found->shape)));
      }
      if (!is_floating_point(found->dtype)) {
        bad(parameters[i].name,
            fmt::format("the checkpoint's {} is {}, no floating-point type", tensor, to_string(found->dtype)));
      }
      known.insert(std::move(tensor));
    };
    need(parameters[i].name);
    for (std::string_view const state : strategy.state_names(i)) need(state_name(parameters[i].name, state));
    known.insert(residual_name(parameters[i]));
  }
  if (!options.partial) check_left_out(checkpoint, known);
}

template <typename Strategy>
void load_into(Checkpoint const& checkpoint, Communicator& communicator, Strategy& strategy,
               std::span<NamedParameter const> parameters, GradientCompressor* compressor, LoadOptions const& options) {
  together(communicator, [&] {
    check_parameters(strategy, parameters);
    check_optimizer(checkpoint.info(), strategy);
    check_tensors(checkpoint, strategy, parameters, options);
    if (compressor != nullptr) check_residuals(checkpoint, parameters);
  });
  // If one rank has refused above, nothing has changed on any rank.
  together(communicator, [&] {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ShardRange const mine = strategy.shard(i);
      strategy.set_master_shard(i, read_range(checkpoint, parameters[i].name, mine));
      for (std::size_t which = 0; which < strategy.state_names(i).size(); ++which) {
        std::string const tensor = state_name(parameters[i].name, strategy.state_names(i)[which]);
        strategy.set_state_shard(i, which, read_range(checkpoint, tensor, mine));
      }
    }
    if (compressor != nullptr) {
      load_residuals(checkpoint, *compressor, parameters, communicator.rank(), communicator.size());
    }
  });
  strategy.set_step_count(checkpoint.info().step);
  strategy.share_parameters();
}

template <typename Strategy>
CheckpointInfo filled_in(CheckpointInfo info, Strategy const& strategy) {
  info.step = strategy.step_count();
  info.optimizer = options_of(strategy);
  return info;
}

}  // namespace

void save(CheckpointSaver& saver, ShardedOptimizer& sharded, std::span<NamedParameter const> parameters,
          CheckpointInfo info, GradientCompressor const* compressor) {
  saver.save(
      [&] {
        sharded.check_step();
        return with_residuals(tensors_of(sharded, parameters), compressor, parameters, saver.communicator());
      },
      filled_in(std::move(info), sharded));
}

void save(CheckpointSaver& saver, Communicator const& communicator, Optimizer& optimizer,
          std::span<NamedParameter const> parameters, CheckpointInfo info, GradientCompressor const* compressor) {
  Whole whole(optimizer);
  saver.save(
      [&] {
        return with_residuals(share_of(tensors_of(whole, parameters), communicator.rank(), communicator.size()),
                              compressor, parameters, communicator);
      },
      filled_in(std::move(info), optimizer));
}

void load(Checkpoint const& checkpoint, Communicator& communicator, ShardedOptimizer& sharded,
          std::span<NamedParameter const> parameters, GradientCompressor* compressor, LoadOptions const& options) {
  load_into(checkpoint, communicator, sharded, parameters, compressor, options);
}

void load(Checkpoint const& checkpoint, Communicator& communicator, Optimizer& optimizer,
          std::span<NamedParameter const> parameters, GradientCompressor* compressor, LoadOptions const& options) {
  Whole whole(optimizer);
  load_into(checkpoint, communicator, whole, parameters, compressor, options);
}

}  // namespace weft
