#pragma once

#include <vector>

#include "weft/zero_optimizer.hpp"

namespace weft {

/// The device of the first parameter, where all have to be.
[[nodiscard]] Device device_of(std::vector<ParameterGroup> const& groups);

/// Local: refuses what a rank can find wrong without asking the others. Errors name rank and parameter.
/// @throws Error{unsupported|invalid_argument}
void check_groups(int rank, std::vector<ParameterGroup> const& groups, ZeroOptions const& options);

/// Collective: checks that every rank passes groups of the same sizes and options, and the same ZeroOptions (of which
/// the Bucketer checks its own). @throws Error{mismatch} on every rank, naming the first rank that differs from rank 0
/// and in what.
void check_agreement(Communicator& communicator, std::vector<ParameterGroup> const& groups, ZeroOptions const& options);

}  // namespace weft
