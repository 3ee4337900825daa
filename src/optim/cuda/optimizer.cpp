#include "optim/cuda/device_optimizer.hpp"
#include "optim/cuda/device_scaler.hpp"
#include "optim/cuda/shard_norm.hpp"

namespace weft {

std::unique_ptr<Optimizer::Impl> make_cuda_optimizer(std::vector<ParameterGroup> const& groups,
                                                     OptimizerSettings const& settings,
                                                     std::vector<ParameterMemory> const* memory, int device) {
  return std::make_unique<cuda::DeviceOptimizer<cuda::Gpu>>(cuda::Gpu(device), groups, settings, memory);
}

std::unique_ptr<GradScaler::Impl> make_cuda_scaler(int device) {
  return std::make_unique<cuda::DeviceScaler<cuda::Gpu>>(cuda::Gpu(device));
}

std::unique_ptr<DeviceNorm> make_cuda_norm(std::span<BufferView const> tensors, Device device) {
  return std::make_unique<cuda::ShardNorm<cuda::Gpu>>(cuda::Gpu(device.index), tensors);
}

}  // namespace weft
