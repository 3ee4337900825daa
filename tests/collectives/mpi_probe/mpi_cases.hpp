#pragma once

#include <cstdint>

#include "weft/weft.hpp"

namespace weft::test {

/// Runs `cases` random cases that `seed` determines, the same on every rank, on both communicators of the same ranks,
/// compares each result with the serial one, and the two byte by byte. @throws std::runtime_error describing the first
/// difference.
void compare_communicators(Communicator& tested, Communicator& reference, int cases, std::uint64_t seed);

/// Runs `cases` random cases that MPI has a function, data type and operator for, and compares with that function's
/// result: byte by byte where it is exact, else as closely as rounding allows. The ranks are MPI_COMM_WORLD's.
/// @throws std::runtime_error describing the first difference.
void compare_with_mpi(Communicator& tested, int cases, std::uint64_t seed);

}  // namespace weft::test
