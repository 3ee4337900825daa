#pragma once

#include <mpi.h>

#include <functional>

#include "common/cases.hpp"

namespace weft::perf {

/// The MPI call (or calls) on MPI_COMM_WORLD that do operation `what`. MPI's default error handler ends the job with a
/// message, so these calls never return an error. Counts are ints, as everywhere in MPI-3.
[[nodiscard]] std::function<void()> mpi_call(Op what, Operands const& on, Place place, MPI_Datatype type, MPI_Op op);

}  // namespace weft::perf
