#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>

#include "common/meeting.hpp"

namespace weft::perf {

/// A Meeting of the ranks of MPI_COMM_WORLD, using MPI alone.
inline Meeting mpi_meeting() {
  Meeting meeting;
  MPI_Comm_rank(MPI_COMM_WORLD, &meeting.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &meeting.ranks);
  meeting.broadcast = [](std::span<std::int64_t> values) {
    MPI_Bcast(values.data(), static_cast<int>(values.size()), MPI_INT64_T, 0, MPI_COMM_WORLD);
  };
  meeting.barrier = [] { MPI_Barrier(MPI_COMM_WORLD); };
  return meeting;
}

}  // namespace weft::perf
