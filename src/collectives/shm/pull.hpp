#pragma once

#include <cstddef>
#include <span>

#include "collectives/call.hpp"

namespace weft::shm {

/// What one rank gives to another and gets from it: bytes of its own buffers.
struct Transfer {
  ByteRange gives;         ///< of send
  ByteRange gets;          ///< of recv
  std::size_t theirs = 0;  ///< where in the other's send buffer this rank's bytes begin
};

/// What one rank gives and gets in a call that only moves bytes: gather, scatter, all_to_all and their forms with
/// unequal parts.
struct Transfers {
  std::span<Transfer> with;    ///< each rank
  std::size_t longest = 0;     ///< of all ranks' ranges; all know it
  std::size_t send_bytes = 0;  ///< span of this rank's send buffer that is read

  [[nodiscard]] Transfer& operator[](int rank) const noexcept { return with[static_cast<std::size_t>(rank)]; }
};

}  // namespace weft::shm
