#include "cuda/gpu.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "runtime/cuda/check.hpp"
#include "weft/cuda.hpp"
#include "weft/error.hpp"

namespace weft::perf {

Gpu open_gpu(Options const& options, Config const& config, int rank, int ranks) {
  int const devices = cuda::device_count();
  if (devices == 0) {
    throw Error(ErrorCode::unsupported,
                "--device cuda: no GPU here that CUDA can use (nvidia-smi -L lists them); leave --device out to "
                "measure host memory");
  }
  if (ranks > devices && !options.share_gpus) {
    throw Error(ErrorCode::unsupported,
                fmt::format("--device cuda: {} ranks, but {} GPUs; start fewer (-t), or add --share-gpus, which checks "
                            "results and whose times say nothing",
                            ranks, devices));
  }
  if (options.share_gpus) setenv("NCCL_HOSTID", fmt::format("weft-perf-{}", rank).c_str(), 0);
  int const device = rank % devices;
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::array<char, 32> bus_id{};
  cuda::check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device), "cudaDeviceGetPCIBusId");
  return {{&cuda::cuda_runtime(), nccl::NcclLibrary::open(config), device}, bus_id.data(), properties.name};
}

}  // namespace weft::perf
