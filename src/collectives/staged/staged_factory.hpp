#pragma once

#include <cstddef>
#include <memory>

#include "collectives/device_backend.hpp"
#include "runtime/cuda/cuda_functions.hpp"

namespace weft::staged {

struct Options {
  cuda::CudaFunctions const* cuda = nullptr;
  int device = 0;
  /// Of a step in either direction, in all pieces: as much as keeps the copies' and the host's fixed costs small, and
  /// in the caches of the host. Equal on all ranks.
  std::size_t chunk_bytes = std::size_t{4} << 20;
};

/// Device memory through host memory: needs nothing but the CUDA runtime.
[[nodiscard]] std::unique_ptr<DeviceFactory> factory(Options const& options);

}  // namespace weft::staged
