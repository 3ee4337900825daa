#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/optimizer.hpp"

namespace weft::torch_backend {

/// One parameter and what is kept about it: tensors whose elements lie without gaps and in the same order.
struct OptimizedTensor {
  at::Tensor parameter;              ///< f32, bf16 or f16
  std::optional<at::Tensor> master;  ///< the f32 original of a bf16 or f16 parameter
  std::vector<at::Tensor> states;    ///< f32, in the order of Optimizer::state_names()
};

/// `gradient` with its elements in the parameter's order: itself or a copy, for example if torch shows its values
/// negated. `index` is for errors.
/// @throws c10::ValueError for one that is not dense or of another shape.
[[nodiscard]] at::Tensor in_order(at::Tensor const& gradient, at::Tensor const& parameter, std::size_t index);

/// Updates torch's tensors with a weft::Optimizer. The Optimizer's parameters are parts of the tensors, which torch's
/// threads take in turn. Keeps the tensors alive. Not thread-safe.
class TensorOptimizer {
 public:
  struct Group {
    OptimizerOptions options;
    std::vector<OptimizedTensor> tensors;
  };

  /// @throws weft::Error as Optimizer's constructor.
  TensorOptimizer(std::vector<Group> const& groups, bool master_weights, bool zero_gradients);

  void set_options(std::size_t group, OptimizerOptions const& options) { optimizer_->set_options(group, options); }

  /// Updates the tensors `indices` (counted over all groups), each with step number 1 + steps[index], which becomes the
  /// new steps[index]. Uses g·inv_scale·clip for a gradient g. Gradients keep their values, or become zero.
  /// @throws c10::ValueError or c10::TypeError, before anything is written, for a gradient that does not fit.
  void step(std::vector<std::size_t> const& indices, std::vector<at::Tensor> const& gradients, at::Tensor const& steps,
            float inv_scale, float clip);

 private:
  struct Update {
    std::size_t part;  ///< the Optimizer's index
    BufferView gradient;
    std::int64_t number;  ///< of the step
    std::size_t tensor;
  };

  void run(std::vector<Update> const& updates, std::size_t elements, StepInputs const& inputs);
  void run_with_norms(std::vector<Update> const& updates, std::size_t elements);

  std::vector<OptimizedTensor> tensors_;
  std::vector<bool> needs_norms_;         ///< by tensor
  std::vector<std::size_t> first_parts_;  ///< by tensor, and one past the last
  bool const zero_gradients_;
  std::optional<Optimizer> optimizer_;
};

}  // namespace weft::torch_backend
