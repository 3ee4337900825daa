#pragma once

#include <functional>
#include <span>
#include <vector>

#include "weft/autotuner.hpp"
#include "weft/bucketer.hpp"

namespace weft {

/// Names settings: "buckets of 4 MiB", and whatever else is not usual.
[[nodiscard]] std::string describe(BucketSettings const& settings);

/// A fingerprint of the types and sizes of all tensors, as one word.
[[nodiscard]] std::string fingerprint(BucketPlan const& plan);

struct BucketChoices {
  std::size_t shards = 1;  ///< in which a bucket is cut
  bool moves = true;       ///< whether buckets may end elsewhere
  bool replans = false;    ///< whether BucketPolicy::optimal may be chosen
};

/// What might be set instead of `now`, which led to `plan`: settings that lead to other plans, or that launch at other
/// times. `set` is the function that sets one.
[[nodiscard]] std::vector<TuningCandidate> bucket_candidates(BucketSettings const& now, BucketPlan const& plan,
                                                             BucketChoices const& choices,
                                                             std::function<void(BucketSettings const&)> const& set);

}  // namespace weft
