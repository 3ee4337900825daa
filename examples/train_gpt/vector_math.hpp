#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace train_gpt {

/// e^x to about 2 ulp, in a form that compilers vectorise (std::exp in a loop costs as much as a small matmul here).
/// Clamped to the finite range; Cephes' polynomial after splitting off the power of two.
[[nodiscard]] inline float fast_exp(float x) noexcept {
  x = std::min(std::max(x, -87.0F), 88.0F);
  constexpr float kRound = 12582912.0F;  // 1.5·2^23: adding and subtracting it rounds to an integer
  float const n = (x * 1.44269504F + kRound) - kRound;
  float const r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

}  // namespace train_gpt
