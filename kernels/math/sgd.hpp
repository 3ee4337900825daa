#pragma once

#include <cmath>

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

struct SgdScalars {
  float lr, momentum, one_minus_dampening, weight_decay;
  bool nesterov, has_momentum;
};

/// The scalars of step `step`, from 1. Step 1 applies no dampening.
WEFT_HOST_DEVICE inline SgdScalars sgd_scalars(double lr, double momentum, double dampening, double weight_decay,
                                               bool nesterov, long long step) {
  return {static_cast<float>(lr),
          static_cast<float>(momentum),
          static_cast<float>(step == 1 ? 1 : 1 - dampening),
          static_cast<float>(weight_decay),
          nesterov,
          momentum != 0};
}

/// A rule as in adam.hpp; state: momentum_buffer, where there is momentum.
template <bool kMomentum>
struct SgdRule {
  static constexpr int kStates = kMomentum ? 1 : 0;
  SgdScalars s;

  WEFT_HOST_DEVICE float operator()(float p, float gradient, [[maybe_unused]] float* state) const {
    float g = std::fma(s.weight_decay, p, gradient);
    if constexpr (kMomentum) {
      state[0] = std::fma(s.momentum, state[0], s.one_minus_dampening * g);
      g = s.nesterov ? std::fma(s.momentum, state[0], g) : state[0];
    }
    return std::fma(-s.lr, g, p);
  }
};

}  // namespace weft::kernels
