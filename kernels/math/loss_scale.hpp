#pragma once

#include <cfloat>

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

/// The state of weft::GradScaler. It is in device memory where the device computes.
struct LossScale {
  float scale = 1;
  float inv_scale = 1;
  float found_inf = 0;           ///< not 0: this step has overflowed
  int hysteresis_left = 1;       ///< overflows left until the scale falls; 0: it falls at each overflow
  long long growth_tracker = 0;  ///< steps without overflow since the scale last changed
};

struct LossScaleRule {
  double growth_factor;
  double backoff_factor;
  int growth_interval;
  int hysteresis;
  bool enabled;
};

WEFT_HOST_DEVICE inline bool is_ordinary(float value) {
  return value >= FLT_MIN && value <= FLT_MAX;
}

/// Sets the scale, unless it or its inverse is not an ordinary float.
WEFT_HOST_DEVICE inline void set_scale(LossScale& state, double scale) {
  auto const narrow = static_cast<float>(scale);
  if (!is_ordinary(narrow) || !is_ordinary(1 / narrow)) return;
  state.scale = narrow;
  state.inv_scale = 1 / narrow;
}

/// Ends a step: adapts the scale.
WEFT_HOST_DEVICE inline void update(LossScale& state, LossScaleRule const& rule) {
  bool const overflowed = state.found_inf != 0;
  state.found_inf = 0;
  if (!rule.enabled) return;
  if (overflowed) {
    state.growth_tracker = 0;
    if (state.hysteresis_left > 0) --state.hysteresis_left;
    if (state.hysteresis_left == 0) set_scale(state, static_cast<double>(state.scale) * rule.backoff_factor);
    return;
  }
  if (++state.growth_tracker < rule.growth_interval) return;
  set_scale(state, static_cast<double>(state.scale) * rule.growth_factor);
  state.growth_tracker = 0;
  state.hysteresis_left = rule.hysteresis;
}

}  // namespace weft::kernels
