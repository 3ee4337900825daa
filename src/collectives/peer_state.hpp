#pragma once

#include <cstdint>

namespace weft {

/// What this rank knows about another rank of a communicator.
enum class PeerState : std::uint8_t {
  present,
  left,  ///< destroyed its communicator
  died,
};

}  // namespace weft
