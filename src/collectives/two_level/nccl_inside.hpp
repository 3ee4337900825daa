#pragma once

#include <memory>

#include "collectives/staged/inside.hpp"
#include "collectives/two_level/two_level_factory.hpp"
#include "weft/communicator.hpp"

namespace weft::two_level {

/// NCCL among the ranks of each host, or where `options.spans` (and where there is one host) among all. Collective over
/// `host`, which all ranks have and which outlives it. Null where every call is to go through host memory: hosts of one
/// rank each, or of unequally many, of which the larger ones' ranks would have nothing to do.
/// @throws Error, on every rank, or none.
[[nodiscard]] std::unique_ptr<staged::Inside> nccl_inside(Options const& options, Communicator& host);

}  // namespace weft::two_level
