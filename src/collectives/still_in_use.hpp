#pragma once

#include <exception>

#include "collectives/call.hpp"

namespace weft {

/// `error`, of a call on a device, which also says that the device did not stop and still has the call's buffers.
[[nodiscard]] std::exception_ptr still_in_use(std::exception_ptr const& error, Call const& call);

}  // namespace weft
