#pragma once

#include <cstddef>
#include <vector>

#include "collectives/cases/contributions.hpp"
#include "collectives/cases/layout.hpp"

namespace weft::test {

/// Whether MPI has a function for the case, a data type and an operator, and says what comes out.
[[nodiscard]] bool mpi_knows(Case const& one);

/// Makes MPI's call on MPI_COMM_WORLD, in memory of its own; what recv then holds.
[[nodiscard]] std::vector<std::byte> call_mpi(Case const& one, Layout const& layout, Contributions const& contributions,
                                              int rank);

}  // namespace weft::test
