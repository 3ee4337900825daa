#pragma once

#include <cstdint>

#include "weft/weft.hpp"

namespace weft::test {

/// Runs `cases` random calls of every operation that `seed` determines, the same on every rank, on both communicators
/// of the same ranks, and compares results: byte by byte between the two, and with a serial computation in double
/// precision where the values are small integers. @throws std::runtime_error describing the first difference.
void compare_communicators(Communicator& tested, Communicator& reference, int cases, std::uint64_t seed);

}  // namespace weft::test
