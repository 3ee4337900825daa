#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optim/rule.hpp"
#include "weft/error.hpp"
#include "weft/optimizer.hpp"

namespace weft {

/// What optimizers on all devices have in common: their groups, and the checks of their arguments.
class Optimizer::Impl {
 public:
  /// @throws as Optimizer's constructor; parameters are on `device`.
  Impl(std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings, Device device);
  virtual ~Impl() = default;
  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  void begin_step(StepInputs const& inputs);
  void update(std::size_t index, BufferView gradient);
  /// For as many gradients or places as indices.
  void update(std::span<std::size_t const> indices, std::span<BufferView const> gradients);
  [[nodiscard]] kernels::LambNorms update_moments(std::size_t index, BufferView gradient);
  void apply(std::size_t index, kernels::LambNorms const& norms);
  /// Where parameters' norms lie, on their device: those of the ith of the given parameters are all[places[i]].
  struct PlacedNorms {
    std::span<std::size_t const> places;
    kernels::LambNorms* all;
  };
  /// For as many gradients or places as indices.
  void update_moments(std::span<std::size_t const> indices, std::span<BufferView const> gradients,
                      PlacedNorms const& norms);
  void apply(std::span<std::size_t const> indices, PlacedNorms const& norms);
  /// As many gradients as parameters.
  void step(std::span<BufferView const> gradients, StepInputs const& inputs);

  [[nodiscard]] virtual BufferView master(std::size_t index) const = 0;
  virtual void refresh_masters() = 0;
  [[nodiscard]] virtual std::int64_t step_count() const = 0;
  virtual void set_step_count(std::int64_t step) = 0;
  [[nodiscard]] virtual std::int64_t const* step_memory() const noexcept = 0;
  [[nodiscard]] virtual std::vector<float> state(std::size_t index, std::size_t which) const = 0;
  virtual void set_state(std::size_t index, std::size_t which, std::span<float const> values) = 0;
  [[nodiscard]] virtual std::size_t state_bytes() const noexcept = 0;

  [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }
  [[nodiscard]] BufferView parameter(std::size_t index) const { return parameters_[index].view; }
  [[nodiscard]] std::size_t group_of(std::size_t index) const { return parameters_[index].group; }
  [[nodiscard]] OptimizerOptions const& options_of(std::size_t index) const { return options_[group_of(index)]; }
  [[nodiscard]] std::vector<OptimizerOptions>& groups() noexcept { return options_; }
  [[nodiscard]] std::vector<OptimizerOptions> const& groups() const noexcept { return options_; }
  [[nodiscard]] OptimizerOptions& group(std::size_t index, char const* call);
  void check_index(std::size_t index, char const* call) const;

 protected:
  virtual void begin(StepInputs const& inputs) = 0;
  /// One parameter's whole update. The gradient is checked.
  virtual void update_one(std::size_t index, BufferView gradient) = 0;
  [[nodiscard]] virtual kernels::LambNorms moments_of_one(std::size_t index, BufferView gradient) = 0;
  /// Only called for optimizers that need_norms().
  virtual void apply_to_one(std::size_t index, kernels::LambNorms const& norms) = 0;
  /// The same for several parameters, including those that need no norms.
  virtual void moments_of_some(std::span<std::size_t const> indices, std::span<BufferView const> gradients,
                               PlacedNorms const& norms);
  virtual void apply_to_some(std::span<std::size_t const> indices, PlacedNorms const& norms);
  /// Update some parameters, or all. The gradients are checked.
  virtual void update_some(std::span<std::size_t const> indices, std::span<BufferView const> gradients);
  virtual void update_all(std::span<BufferView const> gradients);

  [[nodiscard]] OptimizerSettings const& settings() const noexcept { return settings_; }

  /// @throws Error unless `memory` is what all parameters' states and f32 masters need.
  void check_memory(std::vector<ParameterMemory> const& memory) const;

 private:
  struct Parameter {
    BufferView view;
    std::size_t group;
    std::uint64_t updated_in = 0;  // the begin_step() in which it was updated last
  };

  /// @throws Error where the gradient does not fit the parameter.
  void check_gradient(std::size_t index, BufferView const& gradient) const;
  /// The same, and where the parameter was updated in this step; else notes that it is.
  void begin_update(std::size_t index, BufferView const& gradient);
  /// begin_update() of all or, where one is refused, of none.
  void begin_updates(std::span<std::size_t const> indices, std::span<BufferView const> gradients);
  void check_begun(char const* call) const;

  OptimizerSettings settings_;
  std::vector<OptimizerOptions> options_;  // by group
  std::vector<Parameter> parameters_;
  std::uint64_t begun_ = 0;  // how often begin_step() was called
};

/// An optimizer that kernels/cpu/optim computes. `memory`: the caller's for each parameter; null for memory of its own.
[[nodiscard]] std::unique_ptr<Optimizer::Impl> make_cpu_optimizer(std::vector<ParameterGroup> const& groups,
                                                                  OptimizerSettings const& settings,
                                                                  std::vector<ParameterMemory> const* memory = nullptr);
#ifdef WEFT_CUDA_TRAINING
/// An optimizer that kernels/cuda/optim computes.
[[nodiscard]] std::unique_ptr<Optimizer::Impl> make_cuda_optimizer(std::vector<ParameterGroup> const& groups,
                                                                   OptimizerSettings const& settings,
                                                                   std::vector<ParameterMemory> const* memory,
                                                                   int device);
#endif

}  // namespace weft
