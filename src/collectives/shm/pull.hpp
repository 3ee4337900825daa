#pragma once

#include <array>
#include <cstddef>

#include "collectives/call.hpp"
#include "collectives/shm/control_block.hpp"

namespace weft::shm {

/// What one rank gives and gets in a call that only moves bytes: gather, scatter, all_to_all and their forms with
/// unequal parts. Ranges are bytes of this rank's buffers, except `theirs`.
struct Transfers {
  std::array<ByteRange, kMaxRanks> gives{};     ///< of send, to each rank
  std::array<ByteRange, kMaxRanks> gets{};      ///< of recv, from each rank
  std::array<std::size_t, kMaxRanks> theirs{};  ///< where in each rank's send buffer this rank's bytes begin
  std::size_t longest = 0;                      ///< of all ranks' ranges; all know it
  std::size_t send_bytes = 0;                   ///< span of this rank's send buffer that is read
};

}  // namespace weft::shm
