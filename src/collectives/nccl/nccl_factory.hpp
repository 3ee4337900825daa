#pragma once

#include <memory>
#include <vector>

#include "collectives/device_backend.hpp"
#include "collectives/nccl/nccl_communicator.hpp"

namespace weft::nccl {

/// Makes back ends for GPU `device`, through the CUDA runtime and the NCCL library that `config` names.
/// @throws Error{unsupported}
[[nodiscard]] std::unique_ptr<DeviceFactory> factory(int device, Config const& config);

/// Makes a new NCCL communicator of the ranks.
[[nodiscard]] std::unique_ptr<DeviceFactory> factory_of(Libraries libraries);
/// Uses a communicator that exists already; null if that is null.
[[nodiscard]] std::unique_ptr<DeviceFactory> factory_of(std::shared_ptr<NcclCommunicator> communicator);

/// Makes the communicator that succeeds `parent`, see NcclCommunicator::succeed().
[[nodiscard]] std::unique_ptr<DeviceFactory> factory_of_successor(std::shared_ptr<NcclCommunicator> parent,
                                                                  std::vector<int> excluded);

}  // namespace weft::nccl
