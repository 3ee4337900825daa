#pragma once

#include <string>
#include <vector>

#include "sharding/zero_training.hpp"
#include "weft/fully_sharded.hpp"

namespace weft::test {

/// Units of one element, of primes, of nothing, of a bit more than lines.
inline std::vector<TensorSpec> awkward() {
  std::vector<TensorSpec> specs;
  for (std::size_t const count : {1U, 0U, 7U, 13U, 101U, 0U, 0U, 1009U, 64U, 65U, 16U, 1U, 2048U, 1U, 3001U}) {
    specs.push_back({count});
  }
  return specs;
}

/// The parameters of `t` as units of up to `largest` tensors; groups keep their numbers' options.
inline std::vector<ShardedUnit> units_of(Parameters const& parameters, Training const& t, std::size_t largest) {
  std::vector<ShardedUnit> units;
  std::vector<BufferView> const& views = parameters.views();
  for (std::size_t first = 0; first < views.size();) {
    ShardedUnit unit{"unit " + std::to_string(units.size()), {}};
    std::size_t const size = 1 + (first * 7 + units.size()) % largest;
    std::size_t const last = std::min(first + size, views.size());
    for (; first < last; ++first) {
      bool const late = first >= views.size() / 2;
      if (unit.groups.empty() || first == views.size() / 2) unit.groups.push_back({{}, late ? t.second : t.first});
      unit.groups.back().parameters.push_back(views[first]);
    }
    units.push_back(std::move(unit));
  }
  return units;
}

/// Parameters of unit `unit`.
inline std::vector<std::size_t> parameters_of(FullySharded const& model, std::size_t unit) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < model.parameter_count(); ++i) {
    if (model.unit_of(i) == unit) indices.push_back(i);
  }
  return indices;
}

/// Forward reads all, backward writes gradients that depend on parameters.
inline void run_pass(FullySharded& model, Training const& t, int rank, std::size_t step, std::size_t number) {
  for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
    model.before_forward(unit);
    model.after_forward(unit);
  }
  for (std::size_t unit = model.unit_count(); unit-- > 0;) {
    model.before_backward(unit);
    for (std::size_t const i : parameters_of(model, unit)) {
      BufferView const gradient = model.gradient(i);
      if (t.skips(step, i)) {
        if (gradient.count != 0 && !model.holds_gradients(unit)) std::memset(gradient.data, 0, gradient.bytes());
        continue;
      }
      write_gradient(gradient, model.parameter(i), rank, step * t.passes + number, i, model.holds_gradients(unit));
    }
    model.after_backward(unit);
  }
}

/// The bytes of all parameters, as they are gathered.
inline std::vector<std::byte> gathered_bytes_of(FullySharded& model) {
  std::vector<std::byte> bytes;
  for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
    model.before_forward(unit);
    auto const indices = parameters_of(model, unit);
    auto const more = bytes_of(indices.size(), [&](std::size_t i) { return model.parameter(indices[i]); });
    bytes.insert(bytes.end(), more.begin(), more.end());
    model.after_forward(unit);
  }
  return bytes;
}

inline std::vector<std::byte> train_fully_sharded(Communicator& world, Training const& t, FullyShardedOptions options,
                                                  std::size_t largest = 4) {
  options.optimizer = t.settings;
  Parameters const parameters(t.specs);
  FullySharded model(world, units_of(parameters, t, largest), options);
  parameters.poison();
  for (std::size_t step = 0; step < t.steps; ++step) {
    for (std::size_t number = 0; number + 1 < t.passes; ++number) {
      model.no_sync([&] { run_pass(model, t, world.rank(), step, number); });
    }
    run_pass(model, t, world.rank(), step, t.passes - 1);
    model.step();
  }
  return gathered_bytes_of(model);
}

}  // namespace weft::test
