#include "optim/optimizer_impl.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "optim/overlap.hpp"
#include "optim/step_inputs.hpp"

namespace weft {
namespace {

bool is_computable(DataType dtype) noexcept {
  return dtype == DataType::f32 || dtype == DataType::bf16 || dtype == DataType::f16;
}

[[noreturn]] void refuse(ErrorCode code, OptimizerOptions const& options, std::string const& what) {
  throw Error(code, fmt::format("{}: {}", name_of(options), what));
}

void check_parameter(BufferView const& view, std::size_t index, OptimizerOptions const& options, Device device) {
  if (!is_computable(view.dtype) || view.device != device) {
    refuse(ErrorCode::unsupported, options,
           fmt::format("parameter {} is {} on {}; optimizers update f32, bf16 and f16 on {}", index,
                       to_string(view.dtype), to_string(view.device), to_string(device)));
  }
  if (view.data == nullptr && view.count > 0) {
    refuse(ErrorCode::invalid_argument, options,
           fmt::format("parameter {} has {} elements but no memory", index, view.count));
  }
}

void check_apart(std::vector<ParameterGroup> const& groups) {
  std::vector<BufferView> all;
  for (auto const& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  auto const overlap = find_overlap(all);
  if (!overlap) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("Optimizer: parameters {} and {} share memory; pass a tensor once", overlap->first, overlap->second));
}

}  // namespace

Optimizer::Impl::Impl(std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings, Device device)
    : settings_(settings) {
  for (auto const& group : groups) {
    check(group.options);
    for (auto const& parameter : group.parameters) {
      check_parameter(parameter, parameters_.size(), group.options, device);
      parameters_.push_back({parameter, options_.size()});
    }
    options_.push_back(group.options);
  }
  check_apart(groups);
}

void Optimizer::Impl::begin_step(StepInputs const& inputs) {
  check_clip_value("Optimizer::begin_step", inputs);
  begin(inputs);
  ++begun_;
}

void Optimizer::Impl::update(std::size_t index, BufferView gradient) {
  begin_update(index, gradient);
  update_one(index, gradient);
}

void Optimizer::Impl::update(std::span<std::size_t const> indices, std::span<BufferView const> gradients) {
  begin_updates(indices, gradients);
  update_some(indices, gradients);
}

kernels::LambNorms Optimizer::Impl::update_moments(std::size_t index, BufferView gradient) {
  begin_update(index, gradient);
  if (needs_norms(options_of(index))) return moments_of_one(index, gradient);
  update_one(index, gradient);
  return {};
}

void Optimizer::Impl::apply(std::size_t index, kernels::LambNorms const& norms) {
  check_index(index, "apply");
  check_begun("apply");
  if (needs_norms(options_of(index))) apply_to_one(index, norms);
}

void Optimizer::Impl::update_moments(std::span<std::size_t const> indices, std::span<BufferView const> gradients,
                                     PlacedNorms const& norms) {
  begin_updates(indices, gradients);
  moments_of_some(indices, gradients, norms);
}

void Optimizer::Impl::apply(std::span<std::size_t const> indices, PlacedNorms const& norms) {
  for (std::size_t const index : indices) check_index(index, "apply");
  check_begun("apply");
  apply_to_some(indices, norms);
}

void Optimizer::Impl::moments_of_some(std::span<std::size_t const> indices, std::span<BufferView const> gradients,
                                      PlacedNorms const& norms) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (needs_norms(options_of(indices[i]))) {
      norms.all[norms.places[i]] = moments_of_one(indices[i], gradients[i]);
    } else {
      update_one(indices[i], gradients[i]);
    }
  }
}

void Optimizer::Impl::apply_to_some(std::span<std::size_t const> indices, PlacedNorms const& norms) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (needs_norms(options_of(indices[i]))) apply_to_one(indices[i], norms.all[norms.places[i]]);
  }
}

void Optimizer::Impl::step(std::span<BufferView const> gradients, StepInputs const& inputs) {
  for (std::size_t i = 0; i < gradients.size(); ++i) check_gradient(i, gradients[i]);
  begin_step(inputs);  // only now: a refused step does not count
  for (std::size_t i = 0; i < gradients.size(); ++i) begin_update(i, gradients[i]);
  update_all(gradients);
}

void Optimizer::Impl::update_some(std::span<std::size_t const> indices, std::span<BufferView const> gradients) {
  for (std::size_t i = 0; i < indices.size(); ++i) update_one(indices[i], gradients[i]);
}

void Optimizer::Impl::update_all(std::span<BufferView const> gradients) {
  for (std::size_t i = 0; i < gradients.size(); ++i) update_one(i, gradients[i]);
}

OptimizerOptions& Optimizer::Impl::group(std::size_t index, char const* call) {
  if (index < options_.size()) return options_[index];
  throw Error(ErrorCode::invalid_argument, fmt::format("Optimizer::{}: group {} of {}", call, index, options_.size()));
}

void Optimizer::Impl::check_index(std::size_t index, char const* call) const {
  if (index < parameters_.size()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("Optimizer::{}: index {} of {} parameters", call, index, parameters_.size()));
}

void Optimizer::Impl::check_memory(std::vector<ParameterMemory> const& memory) const {
  if (settings_.state != StateType::f32) {
    throw Error(ErrorCode::unsupported, "Optimizer: packed states lie in memory of the optimizer's own");
  }
  if (memory.size() != parameter_count()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer: memory for {} parameters, there are {}", memory.size(), parameter_count()));
  }
  for (std::size_t i = 0; i < parameter_count(); ++i) {
    auto const& view = parameter(i);
    auto const fits = [&](BufferView const& part) {
      return part.dtype == DataType::f32 && part.count == view.count && part.device == view.device &&
             (part.data != nullptr || part.count == 0);
    };
    auto const states = weft::state_names(options_of(i)).size();
    bool const wants_master = settings_.master_weights && view.dtype != DataType::f32;
    bool const good = memory[i].states.size() == states && std::ranges::all_of(memory[i].states, fits) &&
                      (wants_master ? fits(memory[i].master) : memory[i].master.data == nullptr);
    if (good) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer: parameter {} of {} elements wants {} f32 states of as many and {} f32 original",
                            i, view.count, states, wants_master ? "an" : "no"));
  }
}

void Optimizer::Impl::check_begun(char const* call) const {
  if (begun_ != 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("Optimizer::{}: no step has begun; call begin_step() first", call));
}

void Optimizer::Impl::check_gradient(std::size_t index, BufferView const& gradient) const {
  check_index(index, "update");
  auto const& one = parameters_[index];
  auto const& options = options_[one.group];
  if (!is_computable(gradient.dtype) || gradient.count != one.view.count || gradient.device != one.view.device) {
    refuse(ErrorCode::invalid_argument, options,
           fmt::format("gradient {} has {} {} on {}, its parameter {} elements on {}; gradients are f32, bf16 or f16",
                       index, gradient.count, to_string(gradient.dtype), to_string(gradient.device), one.view.count,
                       to_string(one.view.device)));
  }
  if (gradient.data == nullptr && gradient.count > 0) {
    refuse(ErrorCode::invalid_argument, options, fmt::format("gradient {} is null", index));
  }
}

void Optimizer::Impl::begin_update(std::size_t index, BufferView const& gradient) {
  check_gradient(index, gradient);
  check_begun("update");
  auto& one = parameters_[index];
  if (one.updated_in == begun_) {
    refuse(ErrorCode::invalid_argument, options_[one.group],
           fmt::format("parameter {} has been updated in this step; call begin_step() before its next update", index));
  }
  one.updated_in = begun_;
}

void Optimizer::Impl::begin_updates(std::span<std::size_t const> indices, std::span<BufferView const> gradients) {
  std::size_t begun = 0;
  try {
    for (; begun < indices.size(); ++begun) begin_update(indices[begun], gradients[begun]);
  } catch (...) {
    for (std::size_t i = 0; i < begun; ++i) parameters_[indices[i]].updated_in = 0;
    throw;
  }
}

}  // namespace weft
