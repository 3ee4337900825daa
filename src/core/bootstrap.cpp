#include "weft/bootstrap.hpp"

#include "core/launcher.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

class SingleBootstrap final : public Bootstrap {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }
  [[nodiscard]] std::string name() const override { return "single"; }
  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    return {mine.begin(), mine.end()};
  }
};

}  // namespace

std::shared_ptr<Bootstrap> single_bootstrap() {
  return std::make_shared<SingleBootstrap>();
}

std::shared_ptr<Bootstrap> bootstrap_from_environment(Config const& config) {
  if (started_by_mpi()) return mpi_bootstrap(config);
  if (started_by_torchrun()) return torchrun_bootstrap(config);
  return single_bootstrap();
}

}  // namespace weft
