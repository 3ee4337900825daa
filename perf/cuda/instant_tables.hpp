#pragma once

#include "collectives/nccl/nccl_communicator.hpp"

namespace weft::perf {

/// Tables whose functions succeed at once and do nothing: what a call still takes is Weft's own. Streams, events and
/// communicators are made-up handles; everything that is enqueued has happened; memory is the host's.
[[nodiscard]] nccl::Libraries instant_libraries();

}  // namespace weft::perf
