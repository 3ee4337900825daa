#include "weft/optimizer.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "optim/overlap.hpp"
#include "optim/parameter_state.hpp"
#include "optim/rule.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"

namespace weft {
namespace {

bool is_computable(DataType dtype) noexcept {
  return dtype == DataType::f32 || dtype == DataType::bf16 || dtype == DataType::f16;
}

[[noreturn]] void refuse(ErrorCode code, OptimizerOptions const& options, std::string const& what) {
  throw Error(code, fmt::format("{}: {}", name_of(options), what));
}

void check_parameter(BufferView const& view, std::size_t index, OptimizerOptions const& options) {
  if (!is_computable(view.dtype) || view.device.type != DeviceType::cpu) {
    refuse(ErrorCode::unsupported, options,
           fmt::format("parameter {} is {} on {}; optimizers update f32, bf16 and f16 on cpu", index,
                       to_string(view.dtype), to_string(view.device)));
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

float value_or(float const* pointer, float otherwise) noexcept {
  return pointer != nullptr ? *pointer : otherwise;
}

}  // namespace

class Optimizer::Impl {
 public:
  Impl(std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings) : settings_(settings) {
    std::size_t count = 0;
    std::size_t values = 0;
    for (auto const& group : groups) {
      check(group.options);
      options_.push_back(group.options);
      for (auto const& parameter : group.parameters) {
        check_parameter(parameter, count++, group.options);
        values += ParameterState::memory_needed(parameter, group.options, settings);
      }
    }
    check_apart(groups);
    // In one piece, so that small tensors' arrays lie on huge pages as well.
    MemoryScope const scope(MemoryKind::optimizer);
    memory_ = Buffer::host(values, DataType::f32);
    parameters_.reserve(count);
    auto* next = static_cast<float*>(memory_.data());
    for (auto const& group : groups) {
      auto const index = static_cast<std::size_t>(&group - groups.data());
      for (auto const& parameter : group.parameters) {
        parameters_.push_back({ParameterState(parameter, group.options, settings, next), index});
        next += ParameterState::memory_needed(parameter, group.options, settings);
      }
    }
  }

  void begin_step(StepInputs const& inputs) {
    inputs_ = inputs;
    ++begun_;
    if (!skips()) ++step_;
  }

  kernels::LambNorms update(std::size_t index, BufferView gradient) {
    auto& one = at(index, "update");
    auto const& options = options_[one.group];
    check_gradient(one, index, gradient);
    if (one.updated_in == begun_) {
      refuse(
          ErrorCode::invalid_argument, options,
          fmt::format("parameter {} has been updated in this step; call begin_step() before its next update", index));
    }
    one.updated_in = begun_;
    if (skips()) {
      if (settings_.zero_gradients) std::memset(gradient.data, 0, gradient.bytes());
      return {};
    }
    kernels::GradientUse const use{factor(options), settings_.zero_gradients};
    kernels::LambNorms norms;
    one.state.for_each_range(gradient, kernels::tensor_seed(step_, index),
                             [&](kernels::UpdateArrays const& arrays, std::size_t count) {
                               auto const part = run_update(options, lr(options), step_, arrays, count, use);
                               norms.parameter += part.parameter;
                               norms.direction += part.direction;
                             });
    return norms;
  }

  void apply(std::size_t index, kernels::LambNorms const& norms) {
    auto& one = at(index, "apply");
    auto const& options = options_[one.group];
    if (!needs_norms(options) || skips()) return;
    one.state.for_each_range({}, std::nullopt, [&](kernels::UpdateArrays const& arrays, std::size_t count) {
      run_apply(options, lr(options), step_, arrays, count, norms);
    });
  }

  [[nodiscard]] ParameterState const& parameter(std::size_t index) const {
    check_index(index, "parameter");
    return parameters_[index].state;
  }
  [[nodiscard]] ParameterState& parameter(std::size_t index) {
    check_index(index, "parameter");
    return parameters_[index].state;
  }
  [[nodiscard]] OptimizerOptions const& options_of(std::size_t index) const {
    check_index(index, "parameter");
    return options_[parameters_[index].group];
  }
  [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }
  [[nodiscard]] std::vector<OptimizerOptions>& groups() noexcept { return options_; }
  [[nodiscard]] OptimizerOptions& group(std::size_t index, char const* call) {
    if (index < options_.size()) return options_[index];
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer::{}: group {} of {}", call, index, options_.size()));
  }
  [[nodiscard]] std::int64_t step_count() const noexcept { return step_; }
  void set_step_count(std::int64_t step) {
    if (step < 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("Optimizer::set_step_count: {} steps; it must be at least 0", step));
    }
    step_ = step;
  }

 private:
  struct Parameter {
    ParameterState state;
    std::size_t group;
    std::uint64_t updated_in = 0;  // the begin_step() whose update() it had
  };

  [[nodiscard]] bool skips() const noexcept { return value_or(inputs_.found_inf, 0) != 0; }
  [[nodiscard]] double lr(OptimizerOptions const& options) const noexcept {
    return inputs_.lr != nullptr ? *inputs_.lr : lr_of(options);
  }
  [[nodiscard]] float factor(OptimizerOptions const& options) const noexcept {
    float const sign = maximizes(options) ? -1.0F : 1.0F;
    return sign * value_or(inputs_.inv_scale, 1) * value_or(inputs_.clip, 1);
  }

  void check_index(std::size_t index, char const* call) const {
    if (index < parameters_.size()) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer::{}: index {} of {} parameters", call, index, parameters_.size()));
  }

  Parameter& at(std::size_t index, char const* call) {
    check_index(index, call);
    if (begun_ != 0) return parameters_[index];
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer::{}: no step has begun; call begin_step() first", call));
  }

  void check_gradient(Parameter const& one, std::size_t index, BufferView const& gradient) const {
    auto const parameter = one.state.parameter();
    auto const& options = options_[one.group];
    if (!is_computable(gradient.dtype) || gradient.count != parameter.count || gradient.device != parameter.device) {
      refuse(ErrorCode::invalid_argument, options,
             fmt::format("gradient {} has {} {} on {}, its parameter {} elements on {}; gradients are f32, bf16 or f16",
                         index, gradient.count, to_string(gradient.dtype), to_string(gradient.device), parameter.count,
                         to_string(parameter.device)));
    }
    if (gradient.data == nullptr && gradient.count > 0) {
      refuse(ErrorCode::invalid_argument, options, fmt::format("gradient {} is null", index));
    }
  }

  OptimizerSettings settings_;
  std::vector<OptimizerOptions> options_;  // by group
  Buffer memory_;                          // states and f32 originals
  std::vector<Parameter> parameters_;
  StepInputs inputs_;
  std::int64_t step_ = 0;
  std::uint64_t begun_ = 0;  // calls of begin_step()
};

Optimizer::Optimizer(std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings)
    : impl_(std::make_unique<Impl>(groups, settings)) {}
Optimizer::Optimizer(std::vector<BufferView> parameters, OptimizerOptions const& options,
                     OptimizerSettings const& settings)
    : Optimizer(std::vector<ParameterGroup>{{std::move(parameters), options}}, settings) {}
Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::begin_step(StepInputs const& inputs) {
  impl_->begin_step(inputs);
}
void Optimizer::update(std::size_t index, BufferView gradient) {
  auto const norms = update_moments(index, gradient);
  apply(index, norms);
}
void Optimizer::step(std::span<BufferView const> gradients, StepInputs const& inputs) {
  if (gradients.size() != parameter_count()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer::step: {} gradients for {} parameters", gradients.size(), parameter_count()));
  }
  begin_step(inputs);
  for (std::size_t i = 0; i < gradients.size(); ++i) update(i, gradients[i]);
}
Optimizer::Norms Optimizer::update_moments(std::size_t index, BufferView gradient) {
  auto const norms = impl_->update(index, gradient);
  return {norms.parameter, norms.direction};
}
void Optimizer::apply(std::size_t index, Norms const& whole) {
  impl_->apply(index, {whole.parameter, whole.direction});
}

std::size_t Optimizer::parameter_count() const noexcept {
  return impl_->parameter_count();
}
BufferView Optimizer::parameter(std::size_t index) const {
  return impl_->parameter(index).parameter();
}
BufferView Optimizer::master(std::size_t index) const {
  return impl_->parameter(index).master();
}
void Optimizer::refresh_masters() {
  for (std::size_t i = 0; i < parameter_count(); ++i) impl_->parameter(i).refresh_master();
}

std::size_t Optimizer::group_count() const noexcept {
  return impl_->groups().size();
}
OptimizerOptions const& Optimizer::options(std::size_t group) const {
  return impl_->group(group, "options");
}
void Optimizer::set_lr(double lr) {
  for (auto& options : impl_->groups()) weft::set_lr(options, lr);
}
void Optimizer::set_lr(std::size_t group, double lr) {
  weft::set_lr(impl_->group(group, "set_lr"), lr);
}

std::int64_t Optimizer::step_count() const noexcept {
  return impl_->step_count();
}
void Optimizer::set_step_count(std::int64_t step) {
  impl_->set_step_count(step);
}

std::span<std::string_view const> Optimizer::state_names(std::size_t index) const {
  return weft::state_names(impl_->options_of(index));
}
std::vector<float> Optimizer::state(std::size_t index, std::size_t which) const {
  return impl_->parameter(index).state(which);
}
void Optimizer::set_state(std::size_t index, std::size_t which, std::span<float const> values) {
  auto& parameter = impl_->parameter(index);
  if (which >= state_names(index).size() || values.size() != parameter.parameter().count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer::set_state: state {} of parameter {} with {} elements, given {}", which, index,
                            parameter.parameter().count, values.size()));
  }
  parameter.set_state(which, values);
}
std::size_t Optimizer::state_bytes() const noexcept {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < parameter_count(); ++i) bytes += std::as_const(*impl_).parameter(i).bytes();
  return bytes;
}

}  // namespace weft
