#pragma once

#include <chrono>

#include "collectives/call.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// @throws Error{invalid_argument} for a link that cannot be.
void check(EmulatedLink const& link);

/// How long `call` of rank `rank` among `ranks` lasts at least over `link`: the formulas of weft/communicator.hpp.
[[nodiscard]] std::chrono::nanoseconds link_time(EmulatedLink const& link, Call const& call, int rank, int ranks);

}  // namespace weft
