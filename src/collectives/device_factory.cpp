#include "collectives/device_backend.hpp"
#if WEFT_WITH_CUDA
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "collectives/staged/staged_factory.hpp"
#include "core/host_identity.hpp"
#include "core/log.hpp"
#include "runtime/cuda/check.hpp"
#endif
#if WEFT_WITH_NCCL
#include "collectives/nccl/nccl_factory.hpp"
#endif

namespace weft {
#if WEFT_WITH_CUDA
namespace {

/// NCCL for `device`. @throws Error{unsupported} where there is none.
std::unique_ptr<DeviceFactory> nccl_factory([[maybe_unused]] int device, [[maybe_unused]] Config const& config) {
#if WEFT_WITH_NCCL
  return nccl::factory(device, config);
#else
  throw Error(ErrorCode::unsupported, "this Weft was built without NCCL (WEFT_WITH_NCCL)");
#endif
}

/// What a rank tells the others, in bytes.
struct Introduction {
  char host[kMostHostIdCharacters + 1] = {};
  bool has_nccl = false;
  char why_not[240] = {};
};

/// NCCL where all ranks have it, on one host, and it takes them; host memory otherwise.
class ChoosingFactory final : public DeviceFactory {
 public:
  explicit ChoosingFactory(int device) noexcept : device_(device) {}

  [[nodiscard]] std::unique_ptr<DeviceBackend> create(DeviceSetup const& setup) override {
    auto const ranks = introduce(setup);
    auto why = why_not_nccl(ranks);
    if (why.empty()) {
      try {
        return nccl_->create(setup);
      } catch (Error const& error) {
        // The same on all ranks. Who is late or gone is missing to others too.
        if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::system) throw;
        why = fmt::format("NCCL does not take these ranks ({})", error.what());
      }
    }
    explain(setup, why);
    return staged::factory({.cuda = &cuda::cuda_runtime(), .device = device_})->create(setup);
  }

 private:
  std::vector<Introduction> introduce(DeviceSetup const& setup) {
    Introduction mine;
    host_identity(*setup.options.config).copy(mine.host, kMostHostIdCharacters);
    try {
      nccl_ = nccl_factory(device_, *setup.options.config);
      mine.has_nccl = true;
    } catch (Error const& error) {
      std::strncpy(mine.why_not, error.what(), sizeof mine.why_not - 1);
    }
    auto const bytes = setup.bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
    std::vector<Introduction> all(static_cast<std::size_t>(setup.bootstrap.size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

  [[nodiscard]] static std::string why_not_nccl(std::vector<Introduction> const& ranks) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!ranks[rank].has_nccl) return fmt::format("rank {}: {}", rank, ranks[rank].why_not);
      if (std::strcmp(ranks[rank].host, ranks[0].host) != 0) {
        return fmt::format("ranks 0 and {} are on different hosts", rank);
      }
    }
    return {};
  }

  void explain(DeviceSetup const& setup, std::string const& why) const {
    if (setup.bootstrap.rank() != 0) return;
    auto const text = fmt::format("{}, {} ranks: collectives go through pinned host memory, not NCCL: {}",
                                  to_string(Device{DeviceType::cuda, device_}), setup.bootstrap.size(), why);
    if (setup.options.config->explain) {
      tell("explain", text);
    } else {
      log_once(LogLevel::warn, text);
    }
  }

  int const device_;
  std::unique_ptr<DeviceFactory> nccl_;
};

}  // namespace

std::unique_ptr<DeviceFactory> device_factory(Device device, Config const& /*config*/) {
  cuda::DeviceGuard const guard(device.index);  // refuses a device that is not there
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
