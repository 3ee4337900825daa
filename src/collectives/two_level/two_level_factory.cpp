#include "collectives/two_level/two_level_factory.hpp"

#include "collectives/staged/staged_factory.hpp"
#include "collectives/two_level/nccl_inside.hpp"

namespace weft::two_level {

// Those that are split from this one's ask anew who is where.
std::unique_ptr<DeviceFactory> factory(Options const& options) {
  return staged::factory({.cuda = options.libraries.cuda,
                          .device = options.libraries.device,
                          .chunk_bytes = options.chunk_bytes,
                          .inside = [options](Communicator& host) { return nccl_inside(options, host); }});
}

}  // namespace weft::two_level
