#pragma once

#include <cmath>

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

/// GELU, tanh form (Hendrycks, Gimpel: Gaussian Error Linear Units, 2016): x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))).
struct Gelu {
  static constexpr float kRoot = 0.7978845608028654F;
  static constexpr float kCubic = 0.044715F;

  static WEFT_HOST_DEVICE float value(float x) { return x * gate(x); }
  static WEFT_HOST_DEVICE float slope(float x) {
    float const g = gate(x);
    float const bump = 2 * kRoot * (g * (1 - g)) * x;  // 0 where x² overflows
    return g + std::fma(3 * kCubic * x * bump, x, bump);
  }

 private:
  /// (1 + tanh(u))/2 as 1/(1 + exp(−2u)): faster, and without cancellation for u far below 0.
  static WEFT_HOST_DEVICE float gate(float x) {
    float const u = kRoot * std::fma(kCubic * x * x, x, x);
    return 1 / (1 + std::exp(-2 * u));
  }
};

/// Exact GELU: x·Φ(x), with Φ the cumulative normal distribution function.
struct ErfGelu {
  static constexpr float kHalfRoot = 0.7071067811865476F;       // √½
  static constexpr float kDensityAtZero = 0.3989422804014327F;  // 1/√(2π)

  static WEFT_HOST_DEVICE float value(float x) { return x * phi(x); }
  static WEFT_HOST_DEVICE float slope(float x) { return std::fma(x, kDensityAtZero * std::exp(-0.5F * x * x), phi(x)); }

 private:
  /// Φ(x) by erfc(), without cancellation for x far below 0.
  static WEFT_HOST_DEVICE float phi(float x) { return 0.5F * std::erfc(-kHalfRoot * x); }
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
