#include "collectives/nccl/nccl_factory.hpp"

#include <utility>

#include "collectives/nccl/nccl_backend.hpp"
#include "runtime/cuda/check.hpp"

namespace weft::nccl {
namespace {

class Factory final : public DeviceFactory {
 public:
  Factory(Libraries libraries, std::shared_ptr<NcclCommunicator> communicator) noexcept
      : libraries_(std::move(libraries)), communicator_(std::move(communicator)) {}

  [[nodiscard]] std::unique_ptr<DeviceBackend> create(DeviceSetup const& setup) override {
    auto communicator = communicator_
                            ? std::move(communicator_)
                            : NcclCommunicator::create(libraries_, setup.bootstrap, setup.options.config->timeout);
    return std::make_unique<NcclBackend>(std::move(communicator), setup);
  }

 private:
  Libraries libraries_;
  std::shared_ptr<NcclCommunicator> communicator_;
};

class SuccessorFactory final : public DeviceFactory {
 public:
  SuccessorFactory(std::shared_ptr<NcclCommunicator> parent, std::vector<int> excluded) noexcept
      : parent_(std::move(parent)), excluded_(std::move(excluded)) {}

  [[nodiscard]] std::unique_ptr<DeviceBackend> create(DeviceSetup const& setup) override {
    return std::make_unique<NcclBackend>(NcclCommunicator::succeed(parent_, excluded_, setup.bootstrap), setup);
  }

 private:
  std::shared_ptr<NcclCommunicator> parent_;
  std::vector<int> excluded_;
};

}  // namespace

std::unique_ptr<DeviceFactory> factory_of_successor(std::shared_ptr<NcclCommunicator> parent,
                                                    std::vector<int> excluded) {
  return std::make_unique<SuccessorFactory>(std::move(parent), std::move(excluded));
}

std::unique_ptr<DeviceFactory> factory(int device, Config const& config) {
  cuda::DeviceGuard const guard(device);  // refuses a device that is not there
  return factory_of(Libraries{&cuda::cuda_runtime(), NcclLibrary::open(config), device});
}

std::unique_ptr<DeviceFactory> factory_of(Libraries libraries) {
  return std::make_unique<Factory>(std::move(libraries), nullptr);
}

std::unique_ptr<DeviceFactory> factory_of(std::shared_ptr<NcclCommunicator> communicator) {
  if (!communicator) return nullptr;
  auto libraries = communicator->libraries();
  return std::make_unique<Factory>(std::move(libraries), std::move(communicator));
}

}  // namespace weft::nccl
