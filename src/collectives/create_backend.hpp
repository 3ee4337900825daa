#pragma once

#include <memory>

#include "collectives/backend.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// Makes the back end that `options.config->backend` asks for (rank 0's setting decides). Where it is not set: shared
/// memory where all ranks are on one host, UCX where every rank has a host to itself, and both where hosts have several
/// ranks; MPI in place of UCX where MPI has started the ranks and choose_carrier() says so. Collective over the
/// bootstrap. @throws Error{unsupported} with the reason, where that back end is impossible.
[[nodiscard]] std::unique_ptr<Backend> create_backend(Bootstrap& bootstrap, CommunicatorOptions const& options);

}  // namespace weft
