#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "optim/optimizer_impl.hpp"
#include "optim/parameter_state.hpp"
#include "optim/step_inputs.hpp"
#include "weft/memory.hpp"

namespace weft {
namespace {

float value_or(float const* pointer, float otherwise) noexcept {
  return pointer != nullptr ? *pointer : otherwise;
}

class CpuOptimizer final : public Optimizer::Impl {
 public:
  CpuOptimizer(std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings,
               std::vector<ParameterMemory> const* memory)
      : Impl(groups, settings, Device{}) {
    states_.reserve(parameter_count());
    if (memory != nullptr) {
      borrow(*memory);
    } else {
      allocate();
    }
  }

  [[nodiscard]] BufferView master(std::size_t index) const override { return states_[index].master(); }
  void refresh_masters() override {
    for (auto& state : states_) state.refresh_master();
  }
  [[nodiscard]] std::int64_t step_count() const override { return step_; }
  void set_step_count(std::int64_t step) override { step_ = step; }
  [[nodiscard]] std::int64_t const* step_memory() const noexcept override { return &step_; }
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) const override {
    return states_[index].state(which);
  }
  void set_state(std::size_t index, std::size_t which, std::span<float const> values) override {
    states_[index].set_state(which, values);
  }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    std::size_t bytes = 0;
    for (auto const& state : states_) bytes += state.bytes();
    return bytes;
  }

 private:
  /// Allocates everything in one piece, so that small tensors' arrays lie on huge pages as well.
  void allocate() {
    std::size_t values = 0;
    for (std::size_t i = 0; i < parameter_count(); ++i) {
      values += ParameterState::memory_needed(parameter(i), options_of(i), settings());
    }
    MemoryScope const scope(MemoryKind::optimizer);
    memory_ = Buffer::host(values, DataType::f32);
    auto* next = static_cast<float*>(memory_.data());
    for (std::size_t i = 0; i < parameter_count(); ++i) {
      states_.emplace_back(parameter(i), options_of(i), settings(), next);
      next += ParameterState::memory_needed(parameter(i), options_of(i), settings());
    }
  }

  void borrow(std::vector<ParameterMemory> const& memory) {
    check_memory(memory);
    for (std::size_t i = 0; i < parameter_count(); ++i) {
      states_.emplace_back(parameter(i), memory[i]);
    }
  }

  void begin(StepInputs const& inputs) override {
    check_step_number("Optimizer::begin_step", inputs);
    auto const next = inputs.step != nullptr ? *inputs.step : step_ + 1;
    inputs_ = inputs;
    if (!skips()) step_ = next;
  }

  void update_one(std::size_t index, BufferView gradient) override {
    auto const norms = moments_of_one(index, gradient);
    if (needs_norms(options_of(index))) apply_to_one(index, norms);
  }

  kernels::LambNorms moments_of_one(std::size_t index, BufferView gradient) override {
    auto const& options = options_of(index);
    if (skips()) {
      if (settings().zero_gradients && gradient.count != 0) std::memset(gradient.data, 0, gradient.bytes());
      return {};
    }
    kernels::GradientUse const use{factor(options), settings().zero_gradients,
                                   inputs_.clip_value.value_or(kernels::GradientUse::kNoLimit)};
    kernels::LambNorms norms;
    states_[index].for_each_range(gradient, kernels::tensor_seed(step_, index),
                                  [&](kernels::UpdateArrays const& arrays, std::size_t count) {
                                    auto const part = run_update(options, lr(options), step_, arrays, count, use);
                                    norms.parameter += part.parameter;
                                    norms.direction += part.direction;
                                  });
    return norms;
  }

  void apply_to_one(std::size_t index, kernels::LambNorms const& norms) override {
    if (skips()) return;
    auto const& options = options_of(index);
    states_[index].for_each_range({}, std::nullopt, [&](kernels::UpdateArrays const& arrays, std::size_t count) {
      run_apply(options, lr(options), step_, arrays, count, norms);
    });
  }

  [[nodiscard]] bool skips() const noexcept { return value_or(inputs_.found_inf, 0) != 0; }
  [[nodiscard]] double lr(OptimizerOptions const& options) const noexcept {
    return inputs_.lr != nullptr ? *inputs_.lr : lr_of(options);
  }
  [[nodiscard]] float factor(OptimizerOptions const& options) const noexcept {
    float const sign = maximizes(options) ? -1.0F : 1.0F;
    return sign * value_or(inputs_.inv_scale, 1) * value_or(inputs_.clip, 1);
  }

  Buffer memory_;  // states and f32 masters, unless they are the caller's
  std::vector<ParameterState> states_;
  StepInputs inputs_;
  std::int64_t step_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer::Impl> make_cpu_optimizer(std::vector<ParameterGroup> const& groups,
                                                    OptimizerSettings const& settings,
                                                    std::vector<ParameterMemory> const* memory) {
  return std::make_unique<CpuOptimizer>(groups, settings, memory);
}

}  // namespace weft
