#include "sharding/unit_layout.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace weft {
namespace {

FlatTypes types_of(DataType own, FullyShardedOptions const& options) {
  FlatTypes types;
  types.parameter = options.parameter_type.value_or(own);
  types.gradient = options.gradient_type.value_or(types.parameter);
  types.reduced = options.reduce_type.value_or(types.gradient);
  return types;
}

DataType narrowest(FlatTypes const& types) {
  return std::min({types.parameter, types.gradient, types.reduced},
                  [](DataType a, DataType b) { return size_of(a) < size_of(b); });
}

}  // namespace

UnitLayout::UnitLayout(std::vector<ShardedUnit> const& units, FullyShardedOptions const& options, std::size_t parts) {
  std::vector<TensorSpec> specs;
  first_flat_.push_back(0);
  first_parameter_.push_back(0);
  for (ShardedUnit const& unit : units) {
    std::map<DataType, std::vector<std::size_t>> tensors;  // by gathered type
    for (ParameterGroup const& group : unit.groups) {
      for (BufferView const& parameter : group.parameters) {
        tensors[options.parameter_type.value_or(parameter.dtype)].push_back(specs.size());
        parameters_.push_back({names_.size(), 0, 0, parameter.count});
        specs.push_back({parameter.count, parameter.dtype});
      }
    }
    names_.push_back(unit.name);
    for (auto const& [type, members] : tensors) add_flat(specs, members, types_of(type, options), parts);
    first_flat_.push_back(types_.size());
    first_parameter_.push_back(parameters_.size());
  }
}

void UnitLayout::add_flat(std::vector<TensorSpec> const& specs, std::vector<std::size_t> const& tensors,
                          FlatTypes const& types, std::size_t parts) {
  // Places are whole cache lines in the narrowest type, and so in every other.
  std::vector<TensorSpec> alike;
  for (std::size_t const tensor : tensors) alike.push_back({specs[tensor].count, narrowest(types)});
  std::vector<std::size_t> order(alike.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  constexpr std::size_t kNoCap = std::numeric_limits<std::size_t>::max() / 4;
  Bucket flat = BucketPlan::build(alike, order, {kNoCap, kNoCap, kNoCap}, parts).buckets.at(0);
  flat.dtype = types.parameter;
  for (BucketSlot& slot : flat.slots) {
    slot.tensor = tensors[slot.tensor];
    parameters_[slot.tensor].flat = types_.size();
    parameters_[slot.tensor].offset = slot.offset;
  }
  bool const first = first_flat_.back() == types_.size();
  std::size_t const before = types_.size() - 1;
  gathered_offsets_.push_back(first ? 0
                                    : gathered_offsets_[before] + count(before) * size_of(types_[before].parameter));
  gradient_offsets_.push_back(first ? 0 : gradient_offsets_[before] + count(before) * size_of(types_[before].gradient));
  plan_.buckets.push_back(std::move(flat));
  types_.push_back(types);
}

std::size_t UnitLayout::gathered_bytes(std::size_t unit) const noexcept {
  std::size_t bytes = 0;
  for (std::size_t flat = first_flat(unit); flat < last_flat(unit); ++flat) {
    bytes += count(flat) * size_of(types(flat).parameter);
  }
  return bytes;
}

std::size_t UnitLayout::gradient_bytes(std::size_t unit) const noexcept {
  std::size_t bytes = 0;
  for (std::size_t flat = first_flat(unit); flat < last_flat(unit); ++flat) {
    bytes += count(flat) * size_of(types(flat).gradient);
  }
  return bytes;
}

std::vector<PlannedUnit> UnitLayout::planned() const {
  std::vector<PlannedUnit> units;
  for (std::size_t unit = 0; unit < unit_count(); ++unit) units.push_back({names_[unit], gathered_bytes(unit)});
  return units;
}

}  // namespace weft
