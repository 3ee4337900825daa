#pragma once

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

/// min(1, max_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_.
WEFT_HOST_DEVICE inline float clip_factor(double norm, double max_norm) {
  double const factor = max_norm / (norm + 1e-6);
  return static_cast<float>(factor < 1 ? factor : 1);
}

/// x within [−limit, limit]; NaN stays.
WEFT_HOST_DEVICE inline float clip_value(float x, float limit) {
  if (x > limit) return limit;
  return x < -limit ? -limit : x;
}

}  // namespace weft::kernels
