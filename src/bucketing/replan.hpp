#pragma once

#include <cstdint>
#include <vector>

#include "bucketing/bucket_sender.hpp"
#include "weft/bucketer.hpp"

namespace weft {

/// What one rank saw in a step.
struct Observation {
  std::vector<std::uint64_t> order;  ///< of tensors, as their gradients became ready
  std::vector<double> ready;         ///< seconds since the first one, by tensor; empty unless times were noted
};

/// Collective: the plan that options.policy makes of what the ranks saw, the same on each. Where it takes a cost that
/// `cost` does not have, measures it there. @throws Error{out_of_memory} on every rank when that lacks memory.
[[nodiscard]] BucketPlan replan(Communicator& communicator, BucketSender& sender, std::span<TensorSpec const> specs,
                                BucketerOptions const& options, Observation seen, std::optional<TransferCost>& cost);

}  // namespace weft
