#pragma once

#include <memory>

#include "collectives/backend.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Collective over the bootstrap: what `options.config->backend` asks for (rank 0's decides), else shared memory where
/// all ranks are on one host, UCX where every rank has a host to itself, and both where hosts have several; MPI instead
/// of UCX where MPI has started the ranks and choose_carrier() says so.
/// @throws Error{unsupported} where that is impossible, with the reason.
[[nodiscard]] std::unique_ptr<Backend> create_backend(Bootstrap& bootstrap, CommunicatorOptions const& options);

}  // namespace weft
