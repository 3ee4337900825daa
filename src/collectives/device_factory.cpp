#include "collectives/device_backend.hpp"
#if WEFT_WITH_CUDA
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "collectives/device_choice.hpp"
#include "collectives/staged/staged_factory.hpp"
#include "core/log.hpp"
#include "runtime/cuda/check.hpp"
#endif
#if WEFT_WITH_NCCL
#include "collectives/nccl/nccl_factory.hpp"
#include "collectives/two_level/two_level_factory.hpp"
#endif

namespace weft {
#if WEFT_WITH_CUDA
namespace {

using Way = DeviceChoice::Way;

/// Makes the back end that choose() chooses for all ranks.
class ChoosingFactory final : public DeviceFactory {
 public:
  explicit ChoosingFactory(int device) noexcept : device_(device) {}

  [[nodiscard]] std::unique_ptr<DeviceBackend> create(DeviceSetup const& setup) override {
    auto choice = choose(introduce(setup));
    if (choice.way != Way::staged) {
      try {
        auto made = make(choice.way, *setup.options.config)->create(setup);
        explain(setup, choice);
        return made;
      } catch (Error const& error) {
        // All ranks get here alike. Other errors are thrown: a rank that is late or gone would be missing again.
        if (choice.told || (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::system)) throw;
        choice = {Way::staged, fmt::format("NCCL does not take these ranks ({})", error.what()), false, true};
      }
    }
    explain(setup, choice);
    return staged::factory({.cuda = &cuda::cuda_runtime(), .device = device_})->create(setup);
  }

 private:
  [[nodiscard]] std::vector<DeviceIntroduction> introduce(DeviceSetup const& setup) {
    auto const& config = *setup.options.config;
    DeviceIntroduction mine;
    host_identity(config).copy(mine.host, kMostHostIdCharacters);
    mine.wanted = config.device_backend;
    try {
      open(config);
      mine.has_nccl = true;
    } catch (Error const& error) {
      std::strncpy(mine.why_not, error.what(), sizeof mine.why_not - 1);
    }
    auto const bytes = setup.bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
    std::vector<DeviceIntroduction> all(static_cast<std::size_t>(setup.bootstrap.size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

#if WEFT_WITH_NCCL
  void open(Config const& config) {
    libraries_ = {&cuda::cuda_runtime(), nccl::NcclLibrary::open(config), device_};
  }
  [[nodiscard]] std::unique_ptr<DeviceFactory> make(Way way, Config const& config) const {
    if (way == Way::nccl) return nccl::factory_of(libraries_);
    return two_level::factory({.libraries = libraries_, .host = host_identity(config), .spans = way == Way::spanning});
  }
  nccl::Libraries libraries_{};
#else
  static void open(Config const& /*config*/) {
    throw Error(ErrorCode::unsupported, "this Weft was built without NCCL (WEFT_WITH_NCCL)");
  }
  // Not reached: choose() chooses no way that needs NCCL where a rank has none.
  [[nodiscard]] static std::unique_ptr<DeviceFactory> make(Way /*way*/, Config const& /*config*/) {
    return nullptr;
  }
#endif

  [[nodiscard]] static char const* name_of(Way way) noexcept {
    switch (way) {
      case Way::nccl: return "NCCL";
      case Way::spanning: return "NCCL, also between hosts";
      case Way::two_level: return "NCCL inside hosts and pinned host memory between them";
      case Way::staged: return "pinned host memory, not NCCL";
    }
    return "";
  }

  void explain(DeviceSetup const& setup, DeviceChoice const& choice) const {
    if (setup.bootstrap.rank() != 0) return;
    auto const text =
        fmt::format("{}, {} ranks: collectives go through {}: {}", to_string(Device{DeviceType::cuda, device_}),
                    setup.bootstrap.size(), name_of(choice.way), choice.why);
    if (setup.options.config->explain) {
      tell("explain", text);
    } else if (choice.regret) {
      log_once(LogLevel::warn, text);
    }
  }

  int const device_;
};

}  // namespace

std::unique_ptr<DeviceFactory> device_factory(Device device, Config const& /*config*/) {
  cuda::DeviceGuard const guard(device.index);  // throws where there is no such device
  return std::make_unique<ChoosingFactory>(device.index);
}
#else
std::unique_ptr<DeviceFactory> device_factory(Device device, Config const& /*config*/) {
  throw Error(ErrorCode::unsupported, to_string(device) +
                                          ": this Weft was built without CUDA, so it moves host memory only, on CPU "
                                          "streams; build it with -DWEFT_WITH_CUDA=ON");
}
#endif

}  // namespace weft
