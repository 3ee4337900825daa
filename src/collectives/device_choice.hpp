#pragma once

#include <span>
#include <string>

#include "core/host_identity.hpp"
#include "weft/config.hpp"

namespace weft {

/// What a rank tells the others of how it could move memory of its GPU, in bytes.
struct DeviceIntroduction {
  char host[kMostHostIdCharacters + 1] = {};
  DeviceBackendKind wanted = DeviceBackendKind::automatic;
  bool has_nccl = false;
  char why_not[240] = {};  ///< of no NCCL
};

/// How a communicator's ranks do it.
struct DeviceChoice {
  enum class Way {
    nccl,       ///< NCCL on one host, with the control channel that shared memory gives
    spanning,   ///< NCCL on several hosts
    two_level,  ///< NCCL inside hosts, host memory between
    staged,
  };
  Way way = Way::staged;
  std::string why;      ///< for people
  bool told = false;    ///< by the setting, so that nothing else will do
  bool regret = false;  ///< NCCL would be better
};

/// The same on all ranks, whose introductions these are.
/// @throws Error{mismatch} naming ranks whose settings differ; Error{unsupported} where what they ask for is not there.
[[nodiscard]] DeviceChoice choose(std::span<DeviceIntroduction const> ranks);

}  // namespace weft
