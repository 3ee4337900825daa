#pragma once

#include <vector>

#include "weft/fully_sharded.hpp"

namespace weft {

/// The device of the first parameter; the host where there are none.
[[nodiscard]] Device device_of(std::vector<ShardedUnit> const& units);

/// Local: refuses what a rank can find wrong without asking the others. Errors name rank, unit and parameter.
/// @throws Error{unsupported|invalid_argument}
void check_units(int rank, std::vector<ShardedUnit> const& units, FullyShardedOptions const& options);

/// Collective: checks that every rank passes units of the same names, shapes and options, and the same
/// FullyShardedOptions. @throws Error{mismatch} on every rank, naming the first rank that differs from rank 0 and in
/// what.
void check_agreement(Communicator& communicator, std::vector<ShardedUnit> const& units,
                     FullyShardedOptions const& options);

}  // namespace weft
