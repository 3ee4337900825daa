#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::kernels {

/// Elements that share a scale.
inline constexpr std::size_t kStateBlock = 256;

/// How values become bytes: steps are finest near zero. `scale` is the block's largest magnitude.
enum class StateCode {
  signed_squares,    ///< ±scale·(q/127)²
  positive_fourths,  ///< scale·(q/255)⁴; above 0 stays above 0, for a second moment of 0 would make too large a step
};

// `count` up to kStateBlock elements. Thread-safe, do not allocate.

/// Rounds q to nearest, which keeps what unpack_state() gave as it was.
inline constexpr std::uint32_t kNearest = 0;

/// Returns the block's scale. What is not finite spoils the block: its scale is not finite then. Any other seed than
/// kNearest rounds up or down at random (the same bits for the same seed), on average right: what changes by less than
/// half a step a time would else never change.
float pack_state(StateCode code, float const* values, std::size_t count, std::uint32_t seed, std::uint8_t* packed);
void unpack_state(StateCode code, std::uint8_t const* packed, float scale, std::size_t count, float* values);

}  // namespace weft::kernels
