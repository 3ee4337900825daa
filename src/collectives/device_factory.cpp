#include "collectives/device_backend.hpp"
#if WEFT_WITH_NCCL
#include "collectives/nccl/nccl_factory.hpp"
#endif

namespace weft {

std::unique_ptr<DeviceFactory> device_factory(Device device, [[maybe_unused]] Config const& config) {
#if WEFT_WITH_NCCL
  return nccl::factory(device.index, config);
#else
  throw Error(ErrorCode::unsupported, to_string(device) +
                                          ": this Weft was built without NCCL, so it moves host memory only, on CPU "
                                          "streams; build it with -DWEFT_WITH_CUDA=ON and -DWEFT_WITH_NCCL=ON");
#endif
}

}  // namespace weft
