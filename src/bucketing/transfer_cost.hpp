#pragma once

#include "bucketing/bucket_sender.hpp"
#include "weft/bucket_plan.hpp"

namespace weft {

/// Collective: measures what sending a bucket of `dtype` takes, with a few zero-filled buckets of two sizes. The larger
/// size is about an eighth of `bytes` (all buckets together) but at most 4 MiB. The buckets follow each other without a
/// pause, as in a step. The quickest one counts, because a plan lasts longer than what disturbs its making. Ranks agree
/// on the slowest rank's times. Works over emulated links as over others. Frees its memory.
/// @throws Error{out_of_memory} on every rank
[[nodiscard]] TransferCost measure_transfer_cost(Communicator& communicator, BucketSender& sender, DataType dtype,
                                                 std::size_t bytes);

}  // namespace weft
