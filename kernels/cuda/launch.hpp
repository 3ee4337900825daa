#pragma once

#include <cuda_runtime_api.h>

namespace weft::kernels::cuda {

/// Enqueues `blocks` blocks of a body (block.hpp) on `stream`, on the current device; does nothing for 0 blocks.
/// Neither allocates nor waits, and can be captured into a graph. Returns the launch's status. Bodies are instantiated
/// in the .cu files.
template <typename Body>
[[nodiscard]] cudaError_t launch(Body const& body, unsigned blocks, cudaStream_t stream);

}  // namespace weft::kernels::cuda
