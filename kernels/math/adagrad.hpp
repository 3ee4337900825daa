#pragma once

#include <cmath>

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

struct AdagradScalars {
  float lr, weight_decay, eps;
};

/// The scalars of step `step`, from 1.
WEFT_HOST_DEVICE inline AdagradScalars adagrad_scalars(double lr, double lr_decay, double weight_decay, double eps,
                                                       long long step) {
  double const decayed = lr / (1 + static_cast<double>(step - 1) * lr_decay);
  return {static_cast<float>(decayed), static_cast<float>(weight_decay), static_cast<float>(eps)};
}

/// A rule as in adam.hpp; state: sum.
struct AdagradRule {
  static constexpr int kStates = 1;
  AdagradScalars s;

  WEFT_HOST_DEVICE float operator()(float p, float gradient, float* state) const {
    float const g = std::fma(s.weight_decay, p, gradient);
    state[0] = std::fma(g, g, state[0]);
    return std::fma(-s.lr, g / (std::sqrt(state[0]) + s.eps), p);
  }
};

}  // namespace weft::kernels
