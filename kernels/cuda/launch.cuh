#pragma once

#include <type_traits>

#include "kernels/cuda/block.hpp"
#include "kernels/cuda/launch.hpp"

namespace weft::kernels::cuda {

struct DeviceBlock {
  __device__ unsigned index() const { return blockIdx.x; }

  template <typename F>
  __device__ void each_thread(F const& f) const {
    f(threadIdx.x);
    __syncthreads();
  }

  template <typename T>
  struct PerThread {
    T value;
    __device__ T& operator[](unsigned /*thread*/) { return value; }
  };
};

/// The least number of blocks that a multiprocessor is to run at once, which bounds the registers of a thread:
/// Body::kBlocksAtOnce if the body has it, else 0 (no bound).
template <typename Body, typename = void>
inline constexpr unsigned kBlocksAtOnce = 0;
template <typename Body>
inline constexpr unsigned kBlocksAtOnce<Body, std::void_t<decltype(Body::kBlocksAtOnce)>> = Body::kBlocksAtOnce;

template <typename Body>
__global__ void __launch_bounds__(Body::kThreads, kBlocksAtOnce<Body>) run(Body const body) {
  using Shared = typename Body::Shared;
  __shared__ alignas(Shared) unsigned char shared[sizeof(Shared)];  // raw bytes: no constructor runs for shared memory
  DeviceBlock block;
  body(block, *reinterpret_cast<Shared*>(shared));
}

template <typename Body>
cudaError_t launch(Body const& body, unsigned blocks, cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  run<<<blocks, Body::kThreads, 0, stream>>>(body);
  return cudaGetLastError();
}

}  // namespace weft::kernels::cuda

/// Instantiates launch() for a body. For use in namespace weft::kernels::cuda.
#define WEFT_INSTANTIATE(...) template cudaError_t launch(__VA_ARGS__ const&, unsigned, cudaStream_t)
