#pragma once

#include <vector>

#include "weft/fully_sharded.hpp"

namespace weft {

/// Where the first parameter is.
[[nodiscard]] Device device_of(std::vector<ShardedUnit> const& units);

/// Local: what every rank can refuse by itself, naming rank, unit and parameter.
/// @throws Error{unsupported|invalid_argument}
void check_units(int rank, std::vector<ShardedUnit> const& units, FullyShardedOptions const& options);

/// Collective: every rank passes units of the same names, shapes and options, and the same FullyShardedOptions.
/// @throws Error{mismatch} on every rank naming the first that differs from rank 0 and in what.
void check_agreement(Communicator& communicator, std::vector<ShardedUnit> const& units,
                     FullyShardedOptions const& options);

}  // namespace weft
