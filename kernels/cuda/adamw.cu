#include "kernels/cuda/adamw.hpp"

#include <algorithm>
#include <cstdint>

namespace weft::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
/// Enough resident blocks to fill a multiprocessor's 2048 threads; the grid strides over the rest.
constexpr std::size_t kBlocksPerMultiprocessor = 8;
constexpr std::size_t kVectorLanes = 4;

struct Arrays {
  float* parameter;
  float const* gradient;
  float* exp_avg;
  float* exp_avg_sq;
};

__device__ void adam_element(float& p, float g, float& m, float& v, AdamScalars const& scalars) {
  float state[2] = {m, v};
  p = AdamRule<false>{scalars}(p, g, state);
  m = state[0];
  v = state[1];
}

__device__ void update_one(Arrays const& a, std::size_t i, AdamScalars const& scalars) {
  adam_element(a.parameter[i], a.gradient[i], a.exp_avg[i], a.exp_avg_sq[i], scalars);
}

/// Elements [first, first + 4): first is aligned to 16 bytes in every array.
__device__ void update_four(Arrays const& a, std::size_t first, AdamScalars const& scalars) {
  auto p = *reinterpret_cast<float4 const*>(a.parameter + first);
  auto const g = __ldcs(reinterpret_cast<float4 const*>(a.gradient + first));  // not read again in this step
  auto m = *reinterpret_cast<float4 const*>(a.exp_avg + first);
  auto v = *reinterpret_cast<float4 const*>(a.exp_avg_sq + first);
  adam_element(p.x, g.x, m.x, v.x, scalars);
  adam_element(p.y, g.y, m.y, v.y, scalars);
  adam_element(p.z, g.z, m.z, v.z, scalars);
  adam_element(p.w, g.w, m.w, v.w, scalars);
  *reinterpret_cast<float4*>(a.parameter + first) = p;
  *reinterpret_cast<float4*>(a.exp_avg + first) = m;
  *reinterpret_cast<float4*>(a.exp_avg_sq + first) = v;
}

/// `head` single elements, then groups of four, then what is left.
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Arrays a, std::size_t head, std::size_t count, AdamScalars scalars) {
  std::size_t const thread = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  std::size_t const threads = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::size_t const groups = (count - head) / kVectorLanes;
  for (std::size_t i = thread; i < groups; i += threads) update_four(a, head + i * kVectorLanes, scalars);
  std::size_t const tail = head + groups * kVectorLanes;
  for (std::size_t i = thread; i < head; i += threads) update_one(a, i, scalars);
  for (std::size_t i = tail + thread; i < count; i += threads) update_one(a, i, scalars);
}

/// Elements before all four arrays reach a 16-byte boundary; `count` when they never do together.
std::size_t elements_to_alignment(Arrays const& a, std::size_t count) {
  constexpr std::uintptr_t kAlignment = kVectorLanes * sizeof(float);
  auto const offset = [](void const* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % kAlignment; };
  std::uintptr_t const common = offset(a.parameter);
  bool const alike = offset(a.gradient) == common && offset(a.exp_avg) == common && offset(a.exp_avg_sq) == common;
  if (!alike) return count;
  return std::min<std::size_t>(count, (kAlignment - common) % kAlignment / sizeof(float));
}

}  // namespace

cudaError_t adamw(float* parameter, float const* gradient, float* exp_avg, float* exp_avg_sq, std::size_t count,
                  AdamScalars const& scalars, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  int device = 0;
  int multiprocessors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (status != cudaSuccess) return status;
  Arrays const arrays{parameter, gradient, exp_avg, exp_avg_sq};
  std::size_t const head = elements_to_alignment(arrays, count);
  std::size_t const work_items = std::max(head, (count - head) / kVectorLanes + kVectorLanes);
  std::size_t const blocks = std::min((work_items + kThreads - 1) / kThreads,
                                      static_cast<std::size_t>(multiprocessors) * kBlocksPerMultiprocessor);
  adamw_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(arrays, head, count, scalars);
  return cudaGetLastError();
}

}  // namespace weft::kernels::cuda
