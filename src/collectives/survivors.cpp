#include "collectives/survivors.hpp"

#include <memory>

#include "collectives/backend.hpp"

namespace weft {

std::unique_ptr<Survivors> Backend::survivors(std::chrono::milliseconds /*timeout*/) {
  throw Error(
      ErrorCode::unsupported,
      "shrink(): a communicator over MPI does not outlive a rank, for MPI ends the job; start the job again from "
      "its last checkpoint, or use ranks of one host (backend shm)");
}

}  // namespace weft
