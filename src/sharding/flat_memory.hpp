#pragma once

#include <cstddef>

#include "weft/communicator.hpp"
#include "weft/memory.hpp"

namespace weft {

inline constexpr std::size_t kCacheLine = 64;

/// Collective: zero-filled symmetric memory; an empty Buffer of 0 bytes.
[[nodiscard]] Buffer allocate_bytes(Communicator& communicator, std::size_t bytes, MemoryKind kind);

/// `count` elements of `type` from byte `offset` on.
[[nodiscard]] inline BufferView view_at(Buffer const& memory, std::size_t offset, std::size_t count,
                                        DataType type) noexcept {
  return {static_cast<std::byte*>(memory.data()) + offset, count, type};
}

/// Fills a floating-point buffer with NaN.
void overwrite(BufferView const& view) noexcept;

}  // namespace weft
