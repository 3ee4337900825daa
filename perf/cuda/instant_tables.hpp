#pragma once

#include "collectives/nccl/nccl_communicator.hpp"

namespace weft::perf {

/// Function tables whose functions succeed at once and do nothing, so that a call's time is Weft's own. Streams, events
/// and communicators are made-up handles, everything enqueued counts as finished, and memory is host memory.
[[nodiscard]] nccl::Libraries instant_libraries();

}  // namespace weft::perf
