#pragma once

#include "collectives/device_backend.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// What the layers above, and tests, ask of a communicator's device back end that is nobody else's concern.
class DeviceAccess {
 public:
  /// Collective: as Communicator::connect(), with another factory than this library's.
  static void connect(Communicator& communicator, DeviceFactory& factory);

  // Of host memory, for a back end of a device that has a communicator of its own there. Any thread:
  /// Fails every rank's pending and later calls.
  static void fail(Communicator& communicator, ErrorCode code, std::string const& reason) noexcept;
  /// For the thread that makes calls: whether some rank's failure is known here.
  static void throw_if_failed(Communicator& communicator);
  /// Null before connect().
  [[nodiscard]] static DeviceBackend* backend(Communicator const& communicator);
};

}  // namespace weft
