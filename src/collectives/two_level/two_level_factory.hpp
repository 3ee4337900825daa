#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "collectives/device_backend.hpp"
#include "collectives/nccl/nccl_communicator.hpp"

namespace weft::two_level {

struct Options {
  nccl::Libraries libraries;
  std::string host;    ///< name of this rank's host: ranks with equal names reach one another by NCCL
  bool spans = false;  ///< NCCL reaches all ranks, on whatever host they are
  // Equal on all ranks:
  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< see staged::Options; here of one place's share
  /// Calls of at most this many bytes in all go entirely through host memory: two NCCL launches cost more than their
  /// copies. Not measured yet.
  std::size_t flat_bytes = std::size_t{64} << 10;
};

/// Makes back ends for device memory of ranks on several hosts: NCCL inside each host and host memory between hosts, or
/// NCCL for everything. Calls that NCCL does not support go through host memory, see staged::factory().
[[nodiscard]] std::unique_ptr<DeviceFactory> factory(Options const& options);

}  // namespace weft::two_level
