#pragma once

#include <string>

#include "weft/communicator.hpp"

namespace weft {

/// Describes what a step's time depends on besides the model: "2 ranks, of each host 2, on cpus 0-1 of …; link
/// 50us:190MB/s (emulated)". Collective over `exchange`, any communicator of the same ranks.
[[nodiscard]] std::string describe_place(Communicator& exchange, CommunicatorOptions const& trained_over);

}  // namespace weft
