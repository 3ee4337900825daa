#pragma once

// Takes the place of kernels/cuda/launch.cuh where kernels are compiled for a FakeGpu, by the C++ compiler: a launch
// puts the body into the stream's queue, and the queue's thread runs it block after block.

#include "cuda/fake/fake_gpu.hpp"
#include "cuda/kernels/host_block.hpp"
#include "kernels/cuda/launch.hpp"

namespace weft::kernels::cuda {

template <typename Body>
cudaError_t launch(Body const& body, unsigned blocks, cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  return test::FakeGpu::current().launch_kernel(stream, [body, blocks] { test::run_blocks(body, blocks); });
}

}  // namespace weft::kernels::cuda

#define WEFT_INSTANTIATE(...) template cudaError_t launch(__VA_ARGS__ const&, unsigned, cudaStream_t)
