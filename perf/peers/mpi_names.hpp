#pragma once

#include <mpi.h>

#include <optional>

#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"

namespace weft::perf {

/// MPI's name of a data type; none for floats of 8 and 16 bits.
[[nodiscard]] std::optional<MPI_Datatype> mpi_type(DataType dtype);
/// MPI's name of a reduction; none for avg, premul_sum and user.
[[nodiscard]] std::optional<MPI_Op> mpi_op(ReduceOp op);

}  // namespace weft::perf
