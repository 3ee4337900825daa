#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/math/adam.hpp"

namespace weft::kernels::cuda {

/// Enqueues one AdamW pass over four f32 arrays in device memory on `stream`, on the current device. 16-byte accesses
/// where the arrays are aligned alike. The arrays do not overlap. Returns the launch's status.
[[nodiscard]] cudaError_t adamw(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq,
                                std::size_t count, AdamScalars const& scalars, cudaStream_t stream);

}  // namespace weft::kernels::cuda
