#include "collectives/survivors.hpp"

#include <memory>

#include "collectives/backend.hpp"

namespace weft {

void Backend::require_survivors() const {
  throw Error(
      ErrorCode::unsupported,
      "shrink(): a communicator over MPI does not outlive a rank, for MPI ends the job; start the job again from "
      "its last checkpoint, or use ranks of one host (backend shm)");
}

std::unique_ptr<Survivors> Backend::survivors(std::chrono::milliseconds /*timeout*/) {
  require_survivors();
  return nullptr;
}

}  // namespace weft
