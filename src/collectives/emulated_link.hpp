#pragma once

#include <chrono>

#include "collectives/call.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// @throws Error{invalid_argument} for a link with impossible values.
void check(EmulatedLink const& link);

/// The least time that `call` takes over `link`, for rank `rank` of `ranks`: the formulas of weft/communicator.hpp.
[[nodiscard]] std::chrono::nanoseconds link_time(EmulatedLink const& link, Call const& call, int rank, int ranks);

}  // namespace weft
