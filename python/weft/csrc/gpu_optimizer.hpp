#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tensor_optimizer.hpp"
#include "weft/optimizer.hpp"
#include "weft/stream.hpp"

namespace weft::torch_backend {

/// Updates torch's tensors on one GPU, which always step together, with a weft::Optimizer. Keeps the tensors alive. The
/// constructor waits for the GPU; steps only enqueue on torch's current stream, and can be captured in CUDA graphs. Not
/// thread-safe.
class GpuOptimizer {
 public:
  /// `steps`: how many steps the tensors have had. @throws c10::ValueError or weft::Error for tensors that do not fit.
  GpuOptimizer(OptimizerOptions const& options, std::vector<OptimizedTensor> tensors, std::int64_t steps,
               bool master_weights, bool zero_gradients);

  void set_options(OptimizerOptions const& options) { optimizer_->set_options(0, options); }

  /// Numbers that a step reads when it runs: f32 tensors of one element on this GPU.
  struct Inputs {
    std::optional<at::Tensor> lr;  ///< instead of the options'
    std::optional<at::Tensor> inv_scale;
    std::optional<at::Tensor> clip;
    std::optional<at::Tensor> found_inf;  ///< not 0: nothing is updated, and the step does not count
  };
  /// Takes one gradient for each tensor, of the same shape. @throws c10::ValueError or c10::TypeError for one that does
  /// not fit; then nothing is enqueued.
  void step(std::vector<at::Tensor> const& gradients, Inputs const& inputs);

 private:
  std::vector<OptimizedTensor> tensors_;
  bool const zero_gradients_;
  std::optional<Optimizer> optimizer_;
  std::optional<Stream> stream_;  // of the last step
};

}  // namespace weft::torch_backend
