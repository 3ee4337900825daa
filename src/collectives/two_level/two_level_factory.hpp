#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "collectives/device_backend.hpp"
#include "collectives/nccl/nccl_communicator.hpp"

namespace weft::two_level {

struct Options {
  nccl::Libraries libraries;
  std::string host;    ///< this rank's: those of equal names reach one another by NCCL
  bool spans = false;  ///< NCCL reaches all ranks, wherever they are
  // Equal on all ranks:
  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< see staged::Options; of one place's share
  /// Calls of up to so many bytes in all go through host memory whole: two launches of NCCL's cost more than their
  /// copies. Not measured yet.
  std::size_t flat_bytes = std::size_t{64} << 10;
};

/// Device memory of ranks on several hosts: through NCCL inside them and through host memory between, or through NCCL
/// altogether. What NCCL has no form for goes through host memory, see staged::factory().
[[nodiscard]] std::unique_ptr<DeviceFactory> factory(Options const& options);

}  // namespace weft::two_level
