#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

/// Elements that share a scale.
inline constexpr std::size_t kStateBlock = 256;

/// How values become bytes: steps are finest near zero. `scale` is the block's largest magnitude.
enum class StateCode {
  signed_squares,    ///< ±scale·(q/127)²
  positive_fourths,  ///< scale·(q/255)⁴; above 0 stays above 0, for a second moment of 0 would make too large a step
};

/// The seed that rounds q to nearest, which keeps what was unpacked as it was.
inline constexpr std::uint32_t kNearest = 0;

/// The seed of a block of a state: blocks and states round by numbers of their own, none by kNearest. `first`: the
/// block's first element; `seed`: the step's and tensor's.
WEFT_HOST_DEVICE inline std::uint32_t block_seed(std::uint32_t seed, std::size_t first, std::size_t states,
                                                 std::size_t which) {
  return (seed + static_cast<std::uint32_t>(2 * (first * states + which))) | 1U;
}
/// The seed of a tensor in a step: one that repeats with the run.
WEFT_HOST_DEVICE inline std::uint32_t tensor_seed(long long step, std::size_t tensor) {
  return static_cast<std::uint32_t>(step) * 0x85EBCA6BU + static_cast<std::uint32_t>(tensor) * 0x9E3779B9U;
}

namespace block_state {

inline constexpr float kSignedSteps = 127;
inline constexpr float kPositiveSteps = 255;
inline constexpr float kZeroStep = 128;  // the byte that is zero

/// What is added to element `i`'s step before it is rounded down: a half, or its own number from 0 to 1.
WEFT_HOST_DEVICE inline float rounding(std::uint32_t seed, std::uint32_t i) {
  if (seed == kNearest) return 0.5F;
  // Multiplications and shifts that mix all bits (the finaliser of Appleby's MurmurHash3, public domain).
  std::uint32_t x = i + seed * 0x9E3779B9U;
  x = (x ^ (x >> 16)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13)) * 0xC2B2AE35U;
  return static_cast<float>((x ^ (x >> 16)) >> 9) * 0x1p-23F;
}

/// What steps of a scale are multiples of; the inverse of a subnormal overflows.
WEFT_HOST_DEVICE inline float inverse_of(float scale) {
  return scale < 1e-37F ? 0.0F : 1 / scale;
}

/// Element `i` of a block of a finite scale.
WEFT_HOST_DEVICE inline std::uint8_t pack(StateCode code, float value, float inverse, std::uint32_t seed,
                                          std::uint32_t i) {
  float const root = std::sqrt(std::fabs(value) * inverse);
  bool const squares = code == StateCode::signed_squares;
  float const most = squares ? kSignedSteps : kPositiveSteps;
  float steps = std::floor(std::fma(squares ? root : std::sqrt(root), most, rounding(seed, i)));
  if (steps > most) steps = most;
  if (squares) return static_cast<std::uint8_t>(static_cast<int>(kZeroStep + (value < 0 ? -steps : steps)));
  if (value == 0) return 0;
  return static_cast<std::uint8_t>(steps < 1 ? 1 : static_cast<int>(steps));
}

WEFT_HOST_DEVICE inline float unpack(StateCode code, std::uint8_t packed, float scale) {
  if (code == StateCode::signed_squares) {
    float const root = (static_cast<float>(packed) - kZeroStep) / kSignedSteps;
    return (std::fabs(root) * root) * scale;
  }
  float const root = static_cast<float>(packed) / kPositiveSteps;
  float const square = root * root;
  return (square * square) * scale;
}

}  // namespace block_state
}  // namespace weft::kernels
