#pragma once

#include "collectives/device_backend.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Access to the inside of a communicator, for the device back ends and for tests; not for users.
class DeviceAccess {
 public:
  /// Collective: as Communicator::connect(), but `factory` makes the device back end.
  static void connect(Communicator& communicator, DeviceFactory& factory);

  // For a device back end that has a communicator of its own in host memory.
  /// Fails every rank's pending and later calls. Any thread.
  static void fail(Communicator& communicator, ErrorCode code, std::string const& reason) noexcept;
  /// Throws the communicator's failure if this rank knows of one. For the thread that makes calls.
  static void throw_if_failed(Communicator& communicator);
  /// Null before connect().
  [[nodiscard]] static DeviceBackend* backend(Communicator const& communicator);
};

}  // namespace weft
