#pragma once

#include <weft/grad_scaler.hpp>
#include <weft/gradient_policy.hpp>
#include <weft/gradients.hpp>

#include "options.hpp"

namespace train_gpt {

/// What happens to reduced gradients before they are used: the loss scale of fp16 comes off, steps that overflowed are
/// skipped, the rest is clipped.
class StepControl {
 public:
  explicit StepControl(Options const& options, weft::Device device = {});

  /// false: gradients are used as they arrive.
  [[nodiscard]] bool needs_norm() const noexcept { return clip_ > 0 || scaled_; }
  [[nodiscard]] bool is_scaled() const noexcept { return scaled_; }
  [[nodiscard]] float loss_scale() const noexcept { return scaler_.scale(); }
  [[nodiscard]] float inv_scale() const noexcept { return scaler_.inv_scale(); }

  /// For gradients; 0: any.
  [[nodiscard]] double max_norm() const noexcept { return clip_; }

  /// For a sharded optimizer, which then does all of it.
  [[nodiscard]] weft::GradientPolicy policy() noexcept;
  /// For a whole one's step with gradients of that norm, unscaled. Valid until end_step().
  [[nodiscard]] weft::StepInputs inputs(weft::GradientNorm const& norm);
  /// Adapts the loss scale.
  void end_step() { scaler_.update(); }

  [[nodiscard]] weft::GradScaler& scaler() noexcept { return scaler_; }

 private:
  bool scaled_;
  double clip_;
  float factor_ = 1;
  weft::GradScaler scaler_;
};

}  // namespace train_gpt
