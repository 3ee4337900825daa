#include "weft/training_checkpoint.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "checkpoint/tensor_type.hpp"
#include "checkpoint/together.hpp"
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

void check_counts(std::span<NamedParameter const> parameters, std::size_t count) {
  if (parameters.size() == count) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("training checkpoint: {} parameters are named, the strategy has {}", parameters.size(), count));
}

// `values` are those of the range that begins at element `begin`.
auto fill_from(std::vector<float> const& values, std::size_t begin) {
  return [&values, begin](std::size_t first, BufferView const& to) {
    std::memcpy(to.data, values.data() + (first - begin), to.bytes());
  };
}

/// A whole Optimizer on every rank, seen as a strategy whose shards are everything.
class Whole {
 public:
  explicit Whole(Optimizer& optimizer) : optimizer_(optimizer) {}

  [[nodiscard]] std::size_t parameter_count() const { return optimizer_.parameter_count(); }
  [[nodiscard]] ShardRange shard(std::size_t index) const { return {0, optimizer_.parameter(index).count}; }
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
  void share_parameters() {}
  void set_step_count(std::int64_t step) { optimizer_.set_step_count(step); }

 private:
  Optimizer& optimizer_;
};

// This rank's ranges of all values and states; each is made when the saver copies it.
template <typename Strategy>
std::vector<CheckpointTensor> tensors_of(Strategy& strategy, std::span<NamedParameter const> parameters) {
  check_counts(parameters, strategy.parameter_count());
  std::vector<CheckpointTensor> tensors;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    NamedParameter const& named = parameters[i];
    ShardRange const mine = strategy.shard(i);
    ConstBufferView const values(nullptr, mine.count, DataType::f32);
    auto const add = [&](std::string name, auto const& make) {
      tensors.push_back({std::move(name), named.shape, mine.first, values,
                         [=](std::size_t first, BufferView const& to) { fill_from(make(), mine.first)(first, to); }});
    };
    add(named.name, [&strategy, i] { return strategy.master_shard(i); });
    for (std::size_t which = 0; which < strategy.state_names(i).size(); ++which) {
      add(state_name(named.name, strategy.state_names(i)[which]),
          [&strategy, i, which] { return strategy.state_shard(i, which); });
    }
  }
  return tensors;
}

// Reads this rank's range of one tensor, which is all of parameter `named`'s.
std::vector<float> read_range(Checkpoint const& checkpoint, NamedParameter const& named, std::string const& tensor,
                              ShardRange const& mine) {
  Checkpoint::Tensor const* const found = checkpoint.find(tensor);
  if (found != nullptr && found->count != elements_of(named)) {
    bad(named.name,
        fmt::format("has {} elements, the checkpoint's {} has {}", elements_of(named), tensor, found->count));
  }
  std::vector<float> values(mine.count);
  checkpoint.read({tensor, mine.first, std::span(values)});
  return values;
}

template <typename Strategy>
void load_into(Checkpoint const& checkpoint, Communicator& communicator, Strategy& strategy,
               std::span<NamedParameter const> parameters) {
  together(communicator, [&] {
    check_counts(parameters, strategy.parameter_count());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ShardRange const mine = strategy.shard(i);
      strategy.set_master_shard(i, read_range(checkpoint, parameters[i], parameters[i].name, mine));
      for (std::size_t which = 0; which < strategy.state_names(i).size(); ++which) {
        std::string const tensor = state_name(parameters[i].name, strategy.state_names(i)[which]);
        strategy.set_state_shard(i, which, read_range(checkpoint, parameters[i], tensor, mine));
      }
    }
  });
  strategy.set_step_count(checkpoint.info().step);
  strategy.share_parameters();
}

template <typename Strategy>
void fill_in(CheckpointInfo& info, Strategy const& strategy, std::size_t groups) {
  info.step = strategy.step_count();
  info.optimizer.clear();
  for (std::size_t group = 0; group < groups; ++group) info.optimizer.push_back(strategy.options(group));
}

}  // namespace

void save(CheckpointSaver& saver, ZeroOptimizer& zero, std::span<NamedParameter const> parameters,
          CheckpointInfo info) {
  fill_in(info, zero, 1);
  saver.save(tensors_of(zero, parameters), info);
}

void save(CheckpointSaver& saver, FullySharded& model, std::span<NamedParameter const> parameters,
          CheckpointInfo info) {
  fill_in(info, model, model.group_count());
  saver.save(tensors_of(model, parameters), info);
}

void save(CheckpointSaver& saver, Communicator const& communicator, Optimizer& optimizer,
          std::span<NamedParameter const> parameters, CheckpointInfo info) {
  fill_in(info, optimizer, optimizer.group_count());
  Whole whole(optimizer);
  saver.save(share_of(tensors_of(whole, parameters), communicator.rank(), communicator.size()), info);
}

void load(Checkpoint const& checkpoint, Communicator& communicator, ZeroOptimizer& zero,
          std::span<NamedParameter const> parameters) {
  load_into(checkpoint, communicator, zero, parameters);
}

void load(Checkpoint const& checkpoint, Communicator& communicator, FullySharded& model,
          std::span<NamedParameter const> parameters) {
  load_into(checkpoint, communicator, model, parameters);
}

void load(Checkpoint const& checkpoint, Communicator& communicator, Optimizer& optimizer,
          std::span<NamedParameter const> parameters) {
  Whole whole(optimizer);
  load_into(checkpoint, communicator, whole, parameters);
}

}  // namespace weft
