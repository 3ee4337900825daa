#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/optimizer.hpp"

namespace weft::torch_backend {

/// One parameter and what is kept of it; all CPU tensors whose elements lie without gaps, and in the same order.
struct OptimizedTensor {
  at::Tensor parameter;              ///< f32, bf16 or f16
  std::optional<at::Tensor> master;  ///< f32 original of a narrow one
  std::vector<at::Tensor> states;    ///< f32, in the order of Optimizer::state_names()
};

/// `gradient` with its elements in its parameter's order: itself, or a copy. `index` says which in errors.
/// @throws c10::ValueError for one that is not dense or of another shape.
[[nodiscard]] at::Tensor in_order(at::Tensor const& gradient, at::Tensor const& parameter, std::size_t index);

/// Updates torch's tensors by a weft::Optimizer, whose parameters are parts of them that torch's threads take in turn.
/// Keeps the tensors it was given. Not thread-safe.
class TensorOptimizer {
 public:
  struct Group {
    OptimizerOptions options;
    std::vector<OptimizedTensor> tensors;
  };

  /// @throws weft::Error as Optimizer's constructor.
  TensorOptimizer(std::vector<Group> const& groups, bool master_weights, bool zero_gradients);

  void set_options(std::size_t group, OptimizerOptions const& options) { optimizer_->set_options(group, options); }

  /// Updates tensors `indices` (counted over all groups), each by step number 1 + steps[index], which then is the new
  /// steps[index]. Gradients g are taken as g·inv_scale·clip; they keep their values, or become zero.
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
