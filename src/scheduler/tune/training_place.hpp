#pragma once

#include <string>

#include "weft/communicator.hpp"

namespace weft {

/// Collective, over any communicator of the same ranks: what a step's time depends on besides the model, as text:
/// "2 ranks, of each host 2, on cpus 0-1 of …; link 50us:190MB/s (emulated)".
[[nodiscard]] std::string describe_place(Communicator& exchange, CommunicatorOptions const& trained_over);

}  // namespace weft
