#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/buffer.hpp"

namespace weft {

/// Formulas and defaults of torch.optim.AdamW (Loshchilov, Hutter: Decoupled Weight Decay Regularization, 2019).
struct AdamWOptions {
  float lr = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  float weight_decay = 1e-2F;
};

/// AdamW over f32 parameters on the CPU, one pass over memory per tensor, SIMD chosen at run time.
/// With g the gradient at step t:  p ← p·(1 − lr·wd);  m ← m + (1−β1)(g−m);  v ← β2·v + (1−β2)·g²;
///   p ← p − lr/(1−β1^t) · m / (√v/√(1−β2^t) + eps).  Not thread-safe.
class AdamW {
 public:
  /// Keeps views of the parameters, which must outlive it. @throws Error{unsupported} for a type other than f32 or a
  /// device memory.
  explicit AdamW(std::vector<BufferView> parameters, AdamWOptions const& options = {});

  /// Starts a step: step_count() grows by one. Then update() each tensor once, in any order.
  void begin_step() noexcept { ++step_; }
  /// Updates parameter `index` from `gradient`. @throws Error{invalid_argument} on a wrong index, count or dtype.
  void update(std::size_t index, ConstBufferView gradient);
  /// begin_step() and update() of every parameter; gradients in parameter order.
  void step(std::span<BufferView const> gradients);

  void set_lr(float lr) noexcept { options_.lr = lr; }
  [[nodiscard]] AdamWOptions const& options() const noexcept { return options_; }
  [[nodiscard]] std::int64_t step_count() const noexcept { return step_; }
  void set_step_count(std::int64_t step) noexcept { step_ = step; }

  /// First and second moments of parameter `index`, for checkpoints.
  [[nodiscard]] BufferView exp_avg(std::size_t index) const { return exp_avg_.at(index).view(); }
  [[nodiscard]] BufferView exp_avg_sq(std::size_t index) const { return exp_avg_sq_.at(index).view(); }

 private:
  std::vector<BufferView> parameters_;
  AdamWOptions options_;
  std::int64_t step_ = 0;
  std::vector<Buffer> exp_avg_;
  std::vector<Buffer> exp_avg_sq_;
};

}  // namespace weft
