#include "optim/cuda/device_optimizer.hpp"

namespace weft {

std::unique_ptr<Optimizer::Impl> make_cuda_optimizer(std::vector<ParameterGroup> const& groups,
                                                     OptimizerSettings const& settings, int device) {
  return std::make_unique<cuda::DeviceOptimizer<cuda::Gpu>>(cuda::Gpu(device), groups, settings);
}

}  // namespace weft
