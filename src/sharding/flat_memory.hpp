#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/communicator.hpp"
#include "weft/memory.hpp"

namespace weft {

inline constexpr std::size_t kCacheLine = 64;

/// Collective: zero-filled symmetric memory; an empty Buffer of 0 bytes.
[[nodiscard]] Buffer allocate_bytes(Communicator& communicator, std::size_t bytes, MemoryKind kind, Device device = {});

/// `count` elements of `type` from byte `offset` on.
[[nodiscard]] inline BufferView view_at(Buffer const& memory, std::size_t offset, std::size_t count,
                                        DataType type) noexcept {
  return {static_cast<std::byte*>(memory.data()) + offset, count, type, memory.view().device};
}

/// Floating-point numbers whose bytes are all this one are NaN.
inline constexpr std::uint8_t kNanByte = 0xff;

/// Fills a floating-point buffer in host memory with NaN.
void overwrite(BufferView const& view) noexcept;

}  // namespace weft
