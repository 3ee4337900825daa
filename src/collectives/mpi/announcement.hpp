#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/call.hpp"

namespace weft::mpi {

inline constexpr std::size_t kInlineBytes = 96;  ///< payload that rides in an announcement

/// What every rank tells all others at the start of a call, and when it leaves. MPI carries it as bytes.
struct Announcement {
  std::uint64_t sequence = 0;  ///< 0: the rank has left
  PackedContract contract{Contract{}};
  double scale = 1;  ///< premul_sum
  alignas(16) std::byte payload[kInlineBytes] = {};
};

/// What a rank tells another outside of calls.
struct Notice {
  enum class Kind : std::uint32_t {
    here,          ///< has announced call `sequence` and waits for others to; says so again and again
    moving,        ///< all have announced call `sequence`; waits for its data, and says so as well
    left,          ///< makes no call after `sequence`, sends and receives no message any more
    failed,        ///< has decided a failure
    contradicted,  ///< expected another message than the receiver of this notice sent it
  };

  Kind kind = Kind::here;
  std::uint32_t code = 0;  ///< of the failure
  std::uint64_t sequence = 0;
  char message[496] = {};
};

}  // namespace weft::mpi
