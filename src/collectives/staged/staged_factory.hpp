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
  /// Bytes of a step in either direction, over all pieces: enough to make the fixed costs of copies and of the host
  /// small, and little enough for the host's caches. Equal on all ranks.
  std::size_t chunk_bytes = std::size_t{4} << 20;
  /// Makes the Inside, by which GPUs exchange data without the host; null: there is none. Collective over `host`, the
  /// back end's own communicator, which outlives the Inside. Throws on every rank, or none.
  std::function<std::unique_ptr<Inside>(Communicator& host)> inside = nullptr;
};

/// Makes back ends for device memory that go through host memory. They need nothing but the CUDA runtime.
[[nodiscard]] std::unique_ptr<DeviceFactory> factory(Options const& options);

}  // namespace weft::staged
