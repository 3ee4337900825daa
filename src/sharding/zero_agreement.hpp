#pragma once

#include <vector>

#include "weft/zero_optimizer.hpp"

namespace weft {

/// Where the first parameter is, and all have to be.
[[nodiscard]] Device device_of(std::vector<ParameterGroup> const& groups);

/// Local: what every rank can refuse by itself, naming rank and parameter. @throws Error{unsupported|invalid_argument}
void check_groups(int rank, std::vector<ParameterGroup> const& groups, ZeroOptions const& options);

/// Collective: every rank passes groups of the same sizes and options, and the same ZeroOptions (of which the Bucketer
/// checks its own). @throws Error{mismatch} on every rank naming the first that differs from rank 0 and in what.
void check_agreement(Communicator& communicator, std::vector<ParameterGroup> const& groups, ZeroOptions const& options);

}  // namespace weft
