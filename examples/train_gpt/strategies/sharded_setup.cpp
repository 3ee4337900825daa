#include "strategies/sharded_setup.hpp"

#include <cstdint>
#include <utility>

#include <weft/convert.hpp>

namespace train_gpt {
namespace {

/// Rounded to what is trained, as the other strategies start.
void initialise(GptParameters const& parameters, std::uint64_t seed, std::size_t index,
                weft::BufferView const& values) {
  if (values.dtype == weft::DataType::f32) {
    return parameters.initialise(index, seed, {static_cast<float*>(values.data), values.count});
  }
  weft::Buffer const exact = weft::Buffer::host(values.count, weft::DataType::f32);
  parameters.initialise(index, seed, exact.as<float>());
  weft::convert(exact.view(), values);
}

}  // namespace

weft::ZeroOptions zero_options(Options const& options, StepControl& control, weft::BucketerOptions buckets) {
  weft::ZeroOptions zero;
  zero.stage = options.strategy == "zero1" ? weft::ZeroStage::optimizer_states : weft::ZeroStage::gradients;
  zero.optimizer = options.optimizer_settings();
  zero.gradients = control.policy();
  zero.buckets = std::move(buckets);
  zero.buckets.rebuild = options.resume.empty();  // states are loaded into shards that stay
  return zero;
}

std::vector<weft::ShardedUnit> units_of(GptParameters const& parameters, Options const& options, weft::Device device) {
  std::vector<weft::ShardedUnit> units;
  for (GptParameters::Unit const& unit : parameters.units()) {
    weft::ParameterGroup group{{}, options.optimizer_options()};
    for (std::size_t i = unit.first; i < unit.first + unit.count; ++i) {
      group.parameters.push_back({nullptr, parameters.tensors()[i].count, options.parameter_type(), device});
    }
    units.push_back({unit.name, {std::move(group)}});
  }
  return units;
}

weft::FullyShardedOptions fully_sharded_options(Options const& options, GptParameters const& parameters, int ranks,
                                                StepControl& control) {
  weft::FullyShardedOptions sharded;
  sharded.first_values = [&parameters, seed = options.seed](std::size_t index, weft::BufferView const& values) {
    initialise(parameters, seed, index, values);
  };
  sharded.prefetch = static_cast<std::size_t>(options.prefetch);
  sharded.gather_cap = static_cast<std::size_t>(options.gather_cap_mb * (1 << 20));
  sharded.reshard_after_forward = !options.keep_gathered;
  sharded.hybrid_sum = options.sum_by_group ? weft::HybridSum::by_group : weft::HybridSum::rank_order;
  if (options.strategy == "hsdp") sharded.shard_size = options.group_size(ranks);
  sharded.optimizer = options.optimizer_settings();
  sharded.gradients = control.policy();
  return sharded;
}

}  // namespace train_gpt
