#pragma once

#include <optional>
#include <string>

namespace weft {

/// Whether this process's environment says that MPI's launcher (mpirun, mpiexec, srun) started it.
[[nodiscard]] bool started_by_mpi();

/// Whether it says so of torchrun.
[[nodiscard]] bool started_by_torchrun();
/// Of any of them.
[[nodiscard]] bool started_by_launcher();

/// The rank that MPI's launcher gave to this very process, where the environment tells. A process that torchrun has
/// started in such an environment is not it.
[[nodiscard]] std::optional<int> rank_from_mpi_launcher();

/// Checks what MPI found against what the launcher said. A launcher of one MPI with a library of another starts many
/// processes, each of which believes to be alone and would train a model of its own.
/// `size` is MPI_COMM_WORLD's, `library` names the MPI. @throws Error{unsupported} naming the launcher's variable.
void check_launcher(int size, std::string const& library);

}  // namespace weft
