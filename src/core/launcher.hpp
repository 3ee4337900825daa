#pragma once

#include <optional>
#include <string>

namespace weft {

/// Whether MPI's launcher (mpirun, mpiexec, srun) started this process, by its environment. Processes that torchrun has
/// started in such an environment inherit the launcher's variables, but do not count.
[[nodiscard]] bool started_by_mpi();

/// Whether torchrun started this process, by its environment.
[[nodiscard]] bool started_by_torchrun();
/// Whether any of them did.
[[nodiscard]] bool started_by_launcher();

/// The rank that MPI's launcher gave to this very process, where the environment tells. A process that torchrun has
/// started in such an environment has none.
[[nodiscard]] std::optional<int> rank_from_mpi_launcher();

/// Checks what MPI found against what the launcher said. When the launcher of one MPI starts programs with the library
/// of another, each process believes to be alone and would train a model of its own. `size` is that of MPI_COMM_WORLD,
/// `library` names the MPI.
/// @throws Error{unsupported} naming the launcher's variable.
void check_launcher(int size, std::string const& library);

}  // namespace weft
