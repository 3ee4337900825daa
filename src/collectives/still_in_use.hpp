#pragma once

#include <exception>

#include "collectives/call.hpp"

namespace weft {

/// Adds to `error`, of a call on a device, that the device did not stop and still uses the call's buffers.
[[nodiscard]] std::exception_ptr still_in_use(std::exception_ptr const& error, Call const& call);

}  // namespace weft
