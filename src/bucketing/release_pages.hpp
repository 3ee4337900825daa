#pragma once

#include "weft/buffer.hpp"

namespace weft {

/// Zeroes what lies in `whole` outside of its part `kept`. Whole pages go back to the system and come back, zeroed,
/// when they are next written; memory that the system does not take back is zeroed in place.
void release_outside(BufferView const& whole, BufferView const& kept) noexcept;

}  // namespace weft
