#pragma once

#include <cmath>

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

/// GELU, tanh form (Hendrycks, Gimpel: Gaussian Error Linear Units, 2016): x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))).
struct Gelu {
  static constexpr float kRoot = 0.7978845608028654F;
  static constexpr float kCubic = 0.044715F;

  static WEFT_HOST_DEVICE float value(float x) {
    float const t = std::tanh(kRoot * std::fma(kCubic * x * x, x, x));
    return 0.5F * x * (1 + t);
  }
  static WEFT_HOST_DEVICE float slope(float x) {
    float const t = std::tanh(kRoot * std::fma(kCubic * x * x, x, x));
    float const inner = kRoot * std::fma(3 * kCubic * x, x, 1.0F);
    return std::fma(0.5F * x * inner, 1 - t * t, 0.5F * (1 + t));
  }
};

/// x · σ(1.702·x), of the same paper.
struct QuickGelu {
  static constexpr float kSteepness = 1.702F;

  static WEFT_HOST_DEVICE float value(float x) { return x / (1 + std::exp(-kSteepness * x)); }
  static WEFT_HOST_DEVICE float slope(float x) {
    float const s = 1 / (1 + std::exp(-kSteepness * x));
    return s * std::fma(kSteepness * x, 1 - s, 1.0F);
  }
};

}  // namespace weft::kernels
