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
  std::vector<double> seconds;       ///< that each of these took here, waiting for slower ranks included
};

/// Collective: makes the plan that options.policy asks for from what the ranks saw; it is the same on each rank. A
/// policy that needs a transfer cost uses `cost`, or measures it if that is empty. This happens between steps; because
/// in a step buckets travel while processors are busy, what a bucket of the step took longer (at median) is added to
/// the cost's fixed part. @throws Error{out_of_memory} on every rank when measuring lacks memory.
[[nodiscard]] BucketPlan replan(Communicator& communicator, BucketSender& sender, std::span<TensorSpec const> specs,
                                BucketerOptions const& options, Observation seen, std::optional<TransferCost>& cost);

}  // namespace weft
