#pragma once

#include <span>
#include <string>

#include "core/host_identity.hpp"
#include "weft/config.hpp"

namespace weft {

/// What a rank tells the others about how it could move its GPU's memory, in bytes that ranks can exchange.
struct DeviceIntroduction {
  char host[kMostHostIdCharacters + 1] = {};
  DeviceBackendKind wanted = DeviceBackendKind::automatic;
  bool has_nccl = false;
  char why_not[240] = {};  ///< why it has no NCCL
};

/// How a communicator's ranks move the memory of their GPUs.
struct DeviceChoice {
  enum class Way {
    nccl,       ///< NCCL on one host, controlled through shared memory
    spanning,   ///< NCCL on several hosts
    two_level,  ///< NCCL inside hosts, pinned host memory between them
    staged,     ///< pinned host memory, without NCCL
  };
  Way way = Way::staged;
  std::string why;      ///< the reason, for people
  bool told = false;    ///< the setting asks for this way, so no other may take its place
  bool regret = false;  ///< NCCL would be better: the user is warned
};

/// Chooses from the introductions of all ranks, and so the same on all of them.
/// @throws Error{mismatch} naming ranks whose settings differ; Error{unsupported} where the setting cannot be met.
[[nodiscard]] DeviceChoice choose(std::span<DeviceIntroduction const> ranks);

}  // namespace weft
