#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/math/block_state.hpp"

namespace weft::kernels {

// `count` up to kStateBlock elements. Thread-safe, do not allocate.

/// Returns the block's scale. What is not finite spoils the block: its scale is not finite then. Any other seed than
/// kNearest rounds up or down at random (the same bits for the same seed), on average right: what changes by less than
/// half a step a time would else never change.
float pack_state(StateCode code, float const* values, std::size_t count, std::uint32_t seed, std::uint8_t* packed);
void unpack_state(StateCode code, std::uint8_t const* packed, float scale, std::size_t count, float* values);

}  // namespace weft::kernels
