#include "sharding/fully_sharded_agreement.hpp"

#include <fmt/format.h>

#include <string>
#include <unordered_map>

#include "optim/overlap.hpp"
#include "optim/rule.hpp"
#include "sharding/device_judge.hpp"
#include "sharding/facts.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

bool is_computable(DataType type) noexcept {
  return type == DataType::f32 || type == DataType::bf16 || type == DataType::f16;
}

void check_type(int rank, char const* option, std::optional<DataType> const& type) {
  if (!type || is_computable(*type)) return;
  throw Error(ErrorCode::unsupported, fmt::format("rank {}: fully sharded: {} is {}; f32, bf16 and f16 can be", rank,
                                                  option, to_string(*type)));
}

std::string text_of(std::optional<DataType> const& type) {
  return type ? std::string(to_string(*type)) : "each its own";
}

void check_parameter(int rank, ShardedUnit const& unit, std::size_t index, BufferView const& parameter,
                     bool needs_memory, Device device) {
  if (!is_computable(parameter.dtype) || parameter.device != device) {
    throw Error(ErrorCode::unsupported,
                fmt::format("rank {}: fully sharded: parameter {}, in unit '{}', is {} on {}; f32, bf16 and f16 on {}, "
                            "where the first one is, can be updated",
                            rank, index, unit.name, to_string(parameter.dtype), to_string(parameter.device),
                            to_string(device)));
  }
  if (needs_memory && parameter.data == nullptr && parameter.count != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {}: fully sharded: parameter {}, in unit '{}', has {} elements but no memory", rank,
                            index, unit.name, parameter.count));
  }
}

void check_for_device(int rank, FullyShardedOptions const& options, Device device) {
  if (options.compute && options.compute->device() != device) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {}: fully sharded: options.compute is on {}, parameters are on {}", rank,
                            to_string(options.compute->device()), to_string(device)));
  }
}

// Errors name units, so each needs a name of its own.
void check_names(int rank, std::vector<ShardedUnit> const& units) {
  std::unordered_map<std::string, std::size_t> seen;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    if (units[unit].name.empty()) {
      throw Error(ErrorCode::invalid_argument, fmt::format("rank {}: fully sharded: unit {} has no name", rank, unit));
    }
    auto const [other, is_new] = seen.emplace(units[unit].name, unit);
    if (is_new) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {}: fully sharded: units {} and {} are both named '{}'; give each a name of its own",
                            rank, other->second, unit, units[unit].name));
  }
}

void check_apart(int rank, std::vector<ShardedUnit> const& units) {
  std::vector<BufferView> all;
  std::vector<std::string> unit_of;
  for (ShardedUnit const& unit : units) {
    for (ParameterGroup const& group : unit.groups) {
      all.insert(all.end(), group.parameters.begin(), group.parameters.end());
    }
    unit_of.resize(all.size(), unit.name);
  }
  auto const overlap = find_overlap(all);
  if (!overlap) return;
  auto const [a, b] = *overlap;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("rank {}: fully sharded: parameters {}, in unit '{}', and {}, in unit '{}', share memory; "
                          "pass a tensor once",
                          rank, a, unit_of[a], b, unit_of[b]));
}

Facts facts_of(FullyShardedOptions const& options, Device device) {
  return {{"the device", device.type == DeviceType::cpu ? "cpu" : "cuda"},
          {"parameter_type", text_of(options.parameter_type)},
          {"gradient_type", text_of(options.gradient_type)},
          {"reduce_type", text_of(options.reduce_type)},
          {"prefetch", std::to_string(options.prefetch)},
          {"gather_cap", std::to_string(options.gather_cap)},
          {"reshard_after_forward", fmt::format("{}", options.reshard_after_forward)},
          {"gradient_units", std::to_string(options.gradient_units)},
          {"gradient_cap", std::to_string(options.gradient_cap)},
          {"shard_size", std::to_string(options.shard_size)},
          {"hybrid_sum", options.hybrid_sum == HybridSum::by_group ? "by_group" : "rank_order"},
          {"unused", name_of(options.unused)},
          {"first_values", options.first_values ? "some" : "none"},
          {"gradients.scaler", options.gradients.scaler != nullptr ? "some" : "none"},
          {"gradients.max_norm", options.gradients.max_norm ? fmt::format("{}", *options.gradients.max_norm) : "none"},
          {"gradients.norm_type", name_of(options.gradients.norm_type)},
          {"gradients.max_value", describe(options.gradients.max_value)},
          {"optimizer.master_weights", fmt::format("{}", options.optimizer.master_weights)},
          {"optimizer.zero_gradients", fmt::format("{}", options.optimizer.zero_gradients)},
          {"optimizer.state", name_of(options.optimizer.state)}};
}

std::size_t parameters_in(ShardedUnit const& unit) {
  std::size_t count = 0;
  for (ParameterGroup const& group : unit.groups) count += group.parameters.size();
  return count;
}

}  // namespace

Device device_of(std::vector<ShardedUnit> const& units) {
  for (ShardedUnit const& unit : units) {
    for (ParameterGroup const& group : unit.groups) {
      if (!group.parameters.empty()) return group.parameters.front().device;
    }
  }
  return {};
}

void check_units(int rank, std::vector<ShardedUnit> const& units, FullyShardedOptions const& options) {
  check_type(rank, "parameter_type", options.parameter_type);
  check_type(rank, "gradient_type", options.gradient_type);
  check_type(rank, "reduce_type", options.reduce_type);
  if (options.gradient_units == 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {}: fully sharded: gradient_units is 0; backward writes at least 1", rank));
  }
  if (options.unused < UnusedGradients::zero || options.unused > UnusedGradients::fixed) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("fully sharded: rank {}: unknown way to treat unused gradients {}", rank,
                            static_cast<int>(options.unused)));
  }
  if (options.gradients.max_norm) static_cast<void>(clip_factor(0, *options.gradients.max_norm));
  check_names(rank, units);
  bool const needs_memory = !options.first_values;
  Device const device = device_of(units);
  std::size_t index = 0;
  for (ShardedUnit const& unit : units) {
    for (ParameterGroup const& group : unit.groups) {
      check(group.options);
      for (BufferView const& parameter : group.parameters)
        check_parameter(rank, unit, index++, parameter, needs_memory, device);
    }
  }
  DeviceJudge::check(options.gradients, device);
  if (device.type != DeviceType::cpu) check_for_device(rank, options, device);
  if (needs_memory) check_apart(rank, units);
}

void check_agreement(Communicator& communicator, std::vector<ShardedUnit> const& units,
                     FullyShardedOptions const& options) {
  constexpr char const* kWho = "fully sharded";
  Facts facts = facts_of(options, device_of(units));
  facts.emplace_back("the number of units", std::to_string(units.size()));
  compare(communicator, facts, kWho);

  // A list's entries are compared once all know that it has the same length on every rank.
  facts.clear();
  for (ShardedUnit const& unit : units) {
    facts.emplace_back(fmt::format("unit {}", facts.size()), fmt::format("'{}', {} parameters in {} groups", unit.name,
                                                                         parameters_in(unit), unit.groups.size()));
  }
  if (!facts.empty()) compare(communicator, facts, kWho);

  facts.clear();
  std::size_t index = 0;
  for (ShardedUnit const& unit : units) {
    for (std::size_t g = 0; g < unit.groups.size(); ++g) {
      ParameterGroup const& group = unit.groups[g];
      facts.emplace_back(fmt::format("group {} of unit '{}'", g, unit.name),
                         fmt::format("{} parameters, {}", group.parameters.size(), describe(group.options)));
    }
    for (ParameterGroup const& group : unit.groups) {
      for (BufferView const& parameter : group.parameters) {
        facts.emplace_back(fmt::format("parameter {}, in unit '{}'", index++, unit.name),
                           fmt::format("{} x {}", parameter.count, to_string(parameter.dtype)));
      }
    }
  }
  if (!facts.empty()) compare(communicator, facts, kWho);
}

}  // namespace weft
