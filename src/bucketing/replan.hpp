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
  std::vector<std::size_t> bytes;    ///< of each bucket that was sent, the same on all ranks
  std::vector<double> seconds;       ///< that it took here, waiting for slower ranks included
};

/// Collective: the plan that options.policy makes of what the ranks saw, the same on each. Where it takes a cost that
/// `cost` does not have, measures it there: between steps, and what a bucket of the step took longer is added to the
/// fixed part (at median), because buckets travel while processors are busy. @throws Error{out_of_memory} on every rank
/// when that lacks memory.
[[nodiscard]] BucketPlan replan(Communicator& communicator, BucketSender& sender, std::span<TensorSpec const> specs,
                                BucketerOptions const& options, Observation seen, std::optional<TransferCost>& cost);

}  // namespace weft
