#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/math/host_device.hpp"

namespace weft::kernels {

/// Elements that share a scale.
inline constexpr std::size_t kStateBlock = 256;

/// How values are coded as bytes q; the steps are finest near zero. `scale` is the block's largest magnitude.
enum class StateCode {
  signed_squares,    ///< ±scale·(q/127)²
  positive_fourths,  ///< scale·(q/255)⁴; positive values stay positive: a second moment of 0 would give too large a
                     ///< step
};

/// The seed that rounds q to nearest, so that packing unpacked values again gives the same bytes.
inline constexpr std::uint32_t kNearest = 0;

/// The seed of block `first / kStateBlock` of state `which`: different for each block and state, and never kNearest.
/// `first`: the block's first element; `seed`: the tensor's in this step.
WEFT_HOST_DEVICE inline std::uint32_t block_seed(std::uint32_t seed, std::size_t first, std::size_t states,
                                                 std::size_t which) {
  return (seed + static_cast<std::uint32_t>(2 * (first * states + which))) | 1U;
}
/// The seed of a tensor in a step; the same in every run.
WEFT_HOST_DEVICE inline std::uint32_t tensor_seed(long long step, std::size_t tensor) {
  return static_cast<std::uint32_t>(step) * 0x85EBCA6BU + static_cast<std::uint32_t>(tensor) * 0x9E3779B9U;
}

namespace block_state {

inline constexpr float kSignedSteps = 127;
inline constexpr float kPositiveSteps = 255;
inline constexpr float kZeroStep = 128;  // the byte that means zero
// The square and the fourth power of these step counts.
inline constexpr float kSignedPower = kSignedSteps * kSignedSteps;
inline constexpr float kPositivePower = kPositiveSteps * kPositiveSteps * kPositiveSteps * kPositiveSteps;

/// A random number from 0 to 1 for element `i`.
WEFT_HOST_DEVICE inline float random_number(std::uint32_t seed, std::uint32_t i) {
  // Multiplications and shifts that mix all bits (the finaliser of Appleby's MurmurHash3, public domain).
  std::uint32_t x = i + seed * 0x9E3779B9U;
  x = (x ^ (x >> 16)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13)) * 0xC2B2AE35U;
  return static_cast<float>((x ^ (x >> 16)) >> 9) * 0x1p-23F;
}

/// 1 / scale; 0 for scales so small that the inverse could overflow.
WEFT_HOST_DEVICE inline float inverse_of(float scale) {
  return scale < 1e-37F ? 0.0F : 1 / scale;
}

/// (steps + 1)² − steps², or the same with fourth powers.
WEFT_HOST_DEVICE inline float gap_above(bool squares, float steps) {
  if (squares) return std::fma(2.0F, steps, 1.0F);
  return std::fma(steps, std::fma(steps, std::fma(4.0F, steps, 6.0F), 4.0F), 1.0F);
}

/// Packs element `i` of a block whose scale is finite. With random rounding, the probability of rounding up makes the
/// value right on average. It is computed from the value's place between the neighbouring powers; computed from the
/// root's place, small values would grow.
WEFT_HOST_DEVICE inline std::uint8_t pack(StateCode code, float value, float inverse, std::uint32_t seed,
                                          std::uint32_t i) {
  float const ratio = std::fabs(value) * inverse;
  bool const squares = code == StateCode::signed_squares;
  float const most = squares ? kSignedSteps : kPositiveSteps;
  float const root = squares ? std::sqrt(ratio) : std::sqrt(std::sqrt(ratio));
  float steps = std::floor(seed == kNearest ? std::fma(root, most, 0.5F) : root * most);
  if (seed != kNearest) {
    float const square = steps * steps;
    float const power = squares ? square : square * square;
    float const rest = std::fma(ratio, squares ? kSignedPower : kPositivePower, -power);
    if (random_number(seed, i) * gap_above(squares, steps) < rest) steps += 1;
  }
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
