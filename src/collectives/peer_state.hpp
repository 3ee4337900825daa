#pragma once

#include <cstdint>

namespace weft {

/// What is known of another rank of a communicator.
enum class PeerState : std::uint8_t {
  present,
  left,  ///< destroyed its communicator
  died,
};

}  // namespace weft
