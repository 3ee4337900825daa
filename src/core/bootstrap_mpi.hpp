#pragma once

namespace weft {

/// Ends every rank of the job with `code` (MPI_Abort): the way out when a rank has failed and its peers may never reach
/// MPI_Finalize.
[[noreturn]] void abort_mpi_job(int code) noexcept;

}  // namespace weft
