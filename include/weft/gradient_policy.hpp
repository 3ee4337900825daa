#pragma once

#include <optional>

#include "weft/grad_scaler.hpp"
#include "weft/gradients.hpp"

namespace weft {

/// What a sharded step does with gradients between their reduction and the update: it unscales, then clips. With a
/// scaler or a norm, gradients are judged once all of them are reduced, by what all ranks have: where an element on any
/// rank is not finite, every rank skips the step. With neither, a step looks at nothing and may update before the last
/// gradient has arrived.
struct GradientPolicy {
  /// Unscales by it, and sets its found_inf() on every rank where the step is skipped; found_inf() set before on one
  /// rank counts for all. Call its update() after each step, else the next one throws Error{invalid_argument}. Outlives
  /// the optimizer.
  GradScaler* scaler = nullptr;
  /// Clips unscaled gradients to this norm over all parameters and ranks: see clip_factor().
  std::optional<double> max_norm{};
  NormType norm_type = NormType::l2;
  /// Clips each unscaled element to within [−max_value, max_value] while it is updated, at least 0; not with max_norm.
  /// By itself it judges nothing: as with clip_grad_value(), infinity becomes the limit, NaN stays NaN.
  std::optional<float> max_value{};
};

}  // namespace weft
