#include "weft/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "optim/optimizer_impl.hpp"
#include "optim/step_inputs.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// The device of the first parameter, where all have to be.
Device device_of(std::vector<ParameterGroup> const& groups) {
  for (auto const& group : groups) {
    if (!group.parameters.empty()) return group.parameters.front().device;
  }
  return {};
}

std::unique_ptr<Optimizer::Impl> make_optimizer(std::vector<ParameterGroup> const& groups,
                                                OptimizerSettings const& settings,
                                                std::vector<ParameterMemory> const* memory = nullptr) {
#ifdef WEFT_CUDA_TRAINING
  auto const device = device_of(groups);
  if (device.type == DeviceType::cuda) return make_cuda_optimizer(groups, settings, memory, device.index);
#else
  static_cast<void>(device_of);
#endif
  return make_cpu_optimizer(groups, settings, memory);
}

void check_state(Optimizer::Impl const& impl, std::size_t index, std::size_t which, char const* call) {
  impl.check_index(index, call);
  auto const states = state_names(impl.options_of(index)).size();
  if (which < states) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("Optimizer::{}: state {} of parameter {}, which has {}", call, which, index, states));
}

}  // namespace

Optimizer::Optimizer(std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings)
    : impl_(make_optimizer(groups, settings)) {}
Optimizer::Optimizer(std::vector<BufferView> parameters, OptimizerOptions const& options,
                     OptimizerSettings const& settings)
    : Optimizer(std::vector<ParameterGroup>{{std::move(parameters), options}}, settings) {}
Optimizer::Optimizer(std::vector<ParameterGroup> const& groups, std::vector<ParameterMemory> const& memory,
                     OptimizerSettings const& settings)
    : impl_(make_optimizer(groups, settings, &memory)) {}
Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::begin_step(StepInputs const& inputs) {
  impl_->begin_step(inputs);
}
void Optimizer::update(std::size_t index, BufferView gradient) {
  impl_->update(index, gradient);
}
void Optimizer::update(std::span<std::size_t const> indices, std::span<BufferView const> gradients) {
  if (gradients.size() != indices.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer::update: {} gradients for {} parameters", gradients.size(), indices.size()));
  }
  impl_->update(indices, gradients);
}
void Optimizer::step(std::span<BufferView const> gradients, StepInputs const& inputs) {
  if (gradients.size() != parameter_count()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer::step: {} gradients for {} parameters", gradients.size(), parameter_count()));
  }
  impl_->step(gradients, inputs);
}
Optimizer::Norms Optimizer::update_moments(std::size_t index, BufferView gradient) {
  auto const norms = impl_->update_moments(index, gradient);
  return {norms.parameter, norms.direction};
}
void Optimizer::apply(std::size_t index, Norms const& whole) {
  impl_->apply(index, {whole.parameter, whole.direction});
}

namespace {

void check_norms(char const* call, std::size_t indices, std::span<std::size_t const> places, BufferView const& norms) {
  bool fits = places.size() == indices && norms.dtype == DataType::f64;
  for (std::size_t const place : places) fits = fits && 2 * place + 2 <= norms.count;
  if (fits) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("Optimizer::{}: {} places in {} {} for the norms of {} parameters; two f64 each are needed",
                          call, places.size(), norms.count, to_string(norms.dtype), indices));
}

}  // namespace

void Optimizer::update_moments(std::span<std::size_t const> indices, std::span<BufferView const> gradients,
                               std::span<std::size_t const> places, BufferView norms) {
  if (gradients.size() != indices.size()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("Optimizer::update_moments: {} gradients for {} parameters",
                                                         gradients.size(), indices.size()));
  }
  check_norms("update_moments", indices.size(), places, norms);
  impl_->update_moments(indices, gradients, {places, static_cast<kernels::LambNorms*>(norms.data)});
}
void Optimizer::apply(std::span<std::size_t const> indices, std::span<std::size_t const> places, BufferView norms) {
  check_norms("apply", indices.size(), places, norms);
  impl_->apply(indices, {places, static_cast<kernels::LambNorms*>(norms.data)});
}

std::size_t Optimizer::parameter_count() const noexcept {
  return impl_->parameter_count();
}
BufferView Optimizer::parameter(std::size_t index) const {
  impl_->check_index(index, "parameter");
  return impl_->parameter(index);
}
BufferView Optimizer::master(std::size_t index) const {
  impl_->check_index(index, "master");
  return impl_->master(index);
}
void Optimizer::refresh_masters() {
  impl_->refresh_masters();
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
void Optimizer::set_options(std::size_t group, OptimizerOptions const& options) {
  auto& current = impl_->group(group, "set_options");
  check_change("Optimizer::set_options", group, current, options);
  current = options;
}

std::int64_t Optimizer::step_count() const {
  return impl_->step_count();
}
void Optimizer::set_step_count(std::int64_t step) {
  check_step_count("Optimizer::set_step_count", step);
  impl_->set_step_count(step);
}
std::int64_t const* Optimizer::step_memory() const noexcept {
  return impl_->step_memory();
}

std::span<std::string_view const> Optimizer::state_names(std::size_t index) const {
  impl_->check_index(index, "state_names");
  return weft::state_names(impl_->options_of(index));
}
std::vector<float> Optimizer::state(std::size_t index, std::size_t which) const {
  check_state(*impl_, index, which, "state");
  return impl_->state(index, which);
}
void Optimizer::set_state(std::size_t index, std::size_t which, std::span<float const> values) {
  check_state(*impl_, index, which, "set_state");
  std::size_t const count = impl_->parameter(index).count;
  if (values.size() != count) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Optimizer::set_state: state {} of parameter {} with {} elements, given {}", which, index,
                            count, values.size()));
  }
  impl_->set_state(index, which, values);
}
std::size_t Optimizer::state_bytes() const noexcept {
  return impl_->state_bytes();
}

}  // namespace weft
