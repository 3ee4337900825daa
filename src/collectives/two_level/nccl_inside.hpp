#pragma once

#include <memory>

#include "collectives/staged/inside.hpp"
#include "collectives/two_level/two_level_factory.hpp"
#include "weft/communicator.hpp"

namespace weft::two_level {

/// Uses NCCL among the ranks of each host, or among all ranks if `options.spans` is set or there is only one host.
/// Collective over `host`, a communicator of all ranks that outlives the result. Null if every call is to go through
/// host memory: if each host has one rank, or if hosts have unequally many, where some ranks of the larger hosts would
/// have nothing to do.
/// @throws Error, on every rank, or none.
[[nodiscard]] std::unique_ptr<staged::Inside> nccl_inside(Options const& options, Communicator& host);

}  // namespace weft::two_level
