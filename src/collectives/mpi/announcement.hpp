#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/call.hpp"

namespace weft::mpi {

inline constexpr std::size_t kInlineBytes = 96;  ///< payload that an announcement can carry

/// What every rank tells all others at the start of a call, and when it leaves. Sent through MPI as plain bytes.
struct Announcement {
  std::uint64_t sequence = 0;  ///< 0: the rank has left
  PackedContract contract{Contract{}};
  double scale = 1;  ///< of premul_sum
  alignas(16) std::byte payload[kInlineBytes] = {};
};

/// What a rank tells another outside of calls.
struct Notice {
  enum class Kind : std::uint32_t {
    here,          ///< the sender has announced call `sequence` and waits for others to; sent repeatedly
    moving,        ///< all have announced call `sequence`, the sender waits for its data; sent repeatedly
    left,          ///< the sender makes no call after `sequence` and exchanges no more messages
    failed,        ///< the sender has declared a failure
    contradicted,  ///< the sender expected another message than the receiver of this notice sent it
  };

  Kind kind = Kind::here;
  std::uint32_t code = 0;  ///< of the failure
  std::uint64_t sequence = 0;
  char message[496] = {};
};

}  // namespace weft::mpi
