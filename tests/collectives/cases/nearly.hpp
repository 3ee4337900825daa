#pragma once

#include <cstdint>

#include "weft/weft.hpp"

namespace weft::test {

/// Random reductions of every type and operator: `tested` gives nearly what `reference` gives, the same bits whenever
/// it is asked again and on every rank, and the very bits where order cannot matter. @throws std::runtime_error
void compare_nearly(Communicator& tested, Communicator& reference, int cases, std::uint64_t seed);

}  // namespace weft::test
