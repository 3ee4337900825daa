#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "collectives/device_backend.hpp"
#include "collectives/staged/inside.hpp"
#include "runtime/cuda/cuda_functions.hpp"

namespace weft::staged {

struct Options {
  cuda::CudaFunctions const* cuda = nullptr;
  int device = 0;
  /// Of a step in either direction, in all pieces: as much as keeps the copies' and the host's fixed costs small, and
  /// in the caches of the host. Equal on all ranks.
  std::size_t chunk_bytes = std::size_t{4} << 20;
  /// What GPUs do without the host; null: nothing. Collective over `host`, the back end's own communicator, which
  /// outlives it: throws on every rank, or none.
  std::function<std::unique_ptr<Inside>(Communicator& host)> inside = nullptr;
};

/// Device memory through host memory: needs nothing but the CUDA runtime.
[[nodiscard]] std::unique_ptr<DeviceFactory> factory(Options const& options);

}  // namespace weft::staged
