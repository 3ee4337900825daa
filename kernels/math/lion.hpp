#pragma once

#include <cmath>

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

struct LionScalars {
  float lr, decay, beta1, beta2, one_minus_beta1, one_minus_beta2;
};

WEFT_HOST_DEVICE inline LionScalars lion_scalars(double lr, double beta1, double beta2, double weight_decay) {
  return {static_cast<float>(lr),        static_cast<float>(1 - lr * weight_decay),
          static_cast<float>(beta1),     static_cast<float>(beta2),
          static_cast<float>(1 - beta1), static_cast<float>(1 - beta2)};
}

/// A rule as in adam.hpp; state: exp_avg.
struct LionRule {
  static constexpr int kStates = 1;
  LionScalars s;

  WEFT_HOST_DEVICE float operator()(float p, float g, float* state) const {
    float const direction = std::fma(s.beta1, state[0], s.one_minus_beta1 * g);
    state[0] = std::fma(s.beta2, state[0], s.one_minus_beta2 * g);
    float step = direction;  // stays 0 or NaN if the direction is
    if (direction > 0) step = s.lr;
    if (direction < 0) step = -s.lr;
    return std::fma(p, s.decay, -step);
  }
};

}  // namespace weft::kernels
