#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/math/block_state.hpp"

namespace weft::kernels {

// Both functions work on `count` elements of one block, up to kStateBlock. Thread-safe, do not allocate.

/// Packs a block and returns its scale. If any value is not finite, neither is the scale, and the block's values are
/// lost. Seeds other than kNearest round up or down at random (the same bits for the same seed), right on average:
/// otherwise a value that changes by less than half a step each time would never change.
float pack_state(StateCode code, float const* values, std::size_t count, std::uint32_t seed, std::uint8_t* packed);
void unpack_state(StateCode code, std::uint8_t const* packed, float scale, std::size_t count, float* values);

}  // namespace weft::kernels
