#include "collectives/staged/staged_factory.hpp"

#include "collectives/staged/staged_backend.hpp"

namespace weft::staged {
namespace {

class Factory final : public DeviceFactory {
 public:
  explicit Factory(Options const& options) noexcept : options_(options) {}

  [[nodiscard]] std::unique_ptr<DeviceBackend> create(DeviceSetup const& setup) override {
    return std::make_unique<StagedBackend>(options_, setup);
  }

 private:
  Options const options_;
};

}  // namespace

std::unique_ptr<DeviceFactory> factory(Options const& options) {
  return std::make_unique<Factory>(options);
}

}  // namespace weft::staged
