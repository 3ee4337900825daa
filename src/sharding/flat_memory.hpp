#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/communicator.hpp"
#include "weft/memory.hpp"

namespace weft {

inline constexpr std::size_t kCacheLine = 64;

/// Collective: allocates zero-filled symmetric memory; an empty Buffer for 0 bytes.
[[nodiscard]] Buffer allocate_bytes(Communicator& communicator, std::size_t bytes, MemoryKind kind, Device device = {});

/// A view of `count` elements of `type` from byte `offset` of `memory` on.
[[nodiscard]] inline BufferView view_at(Buffer const& memory, std::size_t offset, std::size_t count,
                                        DataType type) noexcept {
  return {static_cast<std::byte*>(memory.data()) + offset, count, type, memory.view().device};
}

/// A floating-point number is NaN if all its bytes are this one.
inline constexpr std::uint8_t kNanByte = 0xff;

/// Fills a floating-point buffer in host memory with NaN.
void overwrite(BufferView const& view) noexcept;

}  // namespace weft
