#pragma once

#include <span>
#include <vector>

#include "weft/bucketer.hpp"

namespace weft {

/// Collective: checks that every rank passes the same specs and the same options that ranks must agree on.
/// @throws Error{mismatch} on every rank, naming the first rank that differs from rank 0 and the first difference.
void check_agreement(Communicator& communicator, std::span<TensorSpec const> specs, BucketerOptions const& options);
/// The same for settings that change between steps.
void check_agreement(Communicator& communicator, BucketSettings const& settings);
/// The same for what begin_join() is given.
void check_agreement(Communicator& communicator, JoinOptions const& options);

/// @throws Error{invalid_argument} for a value that is no BucketPolicy.
void check_policy(BucketPolicy policy);

}  // namespace weft
