#pragma once

#include "collectives/device_backend.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// What the layers above, and tests, ask of a communicator's device back end that is nobody else's concern.
class DeviceAccess {
 public:
  /// Collective: as Communicator::connect(), with another factory than this library's.
  static void connect(Communicator& communicator, DeviceFactory& factory);
  /// Null before connect().
  [[nodiscard]] static DeviceBackend* backend(Communicator const& communicator);
};

}  // namespace weft
