#include "collectives/two_level/two_level_factory.hpp"

#include "collectives/staged/staged_factory.hpp"
#include "collectives/two_level/nccl_inside.hpp"

namespace weft::two_level {

// Communicators split from this one find out anew which rank is on which host.
std::unique_ptr<DeviceFactory> factory(Options const& options) {
  return staged::factory({.cuda = options.libraries.cuda,
                          .device = options.libraries.device,
                          .chunk_bytes = options.chunk_bytes,
                          .inside = [options](Communicator& host) { return nccl_inside(options, host); }});
}

}  // namespace weft::two_level
