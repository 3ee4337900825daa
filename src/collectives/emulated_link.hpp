#pragma once

#include <chrono>

#include "collectives/call.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// How long `call` lasts at least over `link` among `ranks` ranks: the formulas of weft/communicator.hpp.
/// @throws Error{invalid_argument} for a link that cannot be.
void check(EmulatedLink const& link);

[[nodiscard]] std::chrono::nanoseconds link_time(EmulatedLink const& link, Call const& call, int ranks);

}  // namespace weft
