#pragma once

#include "bucketing/bucket_sender.hpp"
#include "weft/bucket_plan.hpp"

namespace weft {

/// Collective: what sending a bucket of `dtype` takes, from a few zero-filled ones of two sizes, the larger of which is
/// about an eighth of `bytes` (all buckets together) but at most 4 MiB. They follow each other without a pause, as
/// buckets do, and the quickest counts: a plan lasts longer than what disturbs its making. Ranks agree: the slowest
/// rank's times. Works over emulated links as over others. The memory is given back. @throws Error{out_of_memory} on
/// every rank
[[nodiscard]] TransferCost measure_transfer_cost(Communicator& communicator, BucketSender& sender, DataType dtype,
                                                 std::size_t bytes);

}  // namespace weft
