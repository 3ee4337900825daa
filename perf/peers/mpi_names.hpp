#pragma once

#include <mpi.h>

#include <optional>

#include "weft/data_type.hpp"
#include "weft/reduce_op.hpp"

namespace weft::perf {

/// MPI's constant for a data type; none for floats of 8 and 16 bits.
[[nodiscard]] std::optional<MPI_Datatype> mpi_type(DataType dtype);
/// MPI's constant for a reduction; none for avg, premul_sum and user, nor for pairs that only Weft supports: logical
/// reductions of floats, and other than logical ones of booleans.
[[nodiscard]] std::optional<MPI_Op> mpi_op(ReduceOp op, DataType type);

}  // namespace weft::perf
