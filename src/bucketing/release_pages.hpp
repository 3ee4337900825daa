#pragma once

#include "weft/buffer.hpp"

namespace weft {

/// Zeroes what lies in `whole` outside `kept`, a part of it; whole pages go back to the system, and come back, zeroed,
/// when they are next written. Memory that the system does not take back is zeroed like the rest.
void release_outside(BufferView const& whole, BufferView const& kept) noexcept;

}  // namespace weft
