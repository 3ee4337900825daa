#include "step_control.hpp"

namespace train_gpt {

StepControl::StepControl(Options const& options, weft::Device device)
    : scaled_(options.precision == "fp16"),
      clip_(options.clip),
      scaler_({.init_scale = options.loss_scale, .growth_interval = options.growth_interval, .enabled = scaled_},
              device) {}

weft::GradientPolicy StepControl::policy() noexcept {
  weft::GradientPolicy policy;
  if (scaled_) policy.scaler = &scaler_;
  if (clip_ > 0) policy.max_norm = clip_;
  return policy;
}

weft::StepInputs StepControl::inputs(weft::GradientNorm const& norm) {
  if (!norm.finite) scaler_.found_inf() = 1;
  factor_ = clip_ > 0 && norm.finite ? weft::clip_factor(norm.norm, clip_) : 1.0F;
  weft::StepInputs inputs = scaler_.inputs();
  inputs.clip = &factor_;
  return inputs;
}

}  // namespace train_gpt
