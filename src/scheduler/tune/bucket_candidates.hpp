#pragma once

#include <functional>
#include <span>
#include <vector>

#include "weft/autotuner.hpp"
#include "weft/bucketer.hpp"

namespace weft {

/// "buckets of 4 MiB", and what else is not usual.
[[nodiscard]] std::string describe(BucketSettings const& settings);

/// Types and numbers of tensors' elements, as one word.
[[nodiscard]] std::string fingerprint(BucketPlan const& plan);

struct BucketChoices {
  std::size_t shards = 1;  ///< of a bucket
  bool moves = true;       ///< buckets may end elsewhere
  bool replans = false;    ///< BucketPolicy::optimal may be chosen
};

/// What `now`, which led to `plan`, might be instead: settings that lead to other plans, or launch at other times.
/// `set` is to set one.
[[nodiscard]] std::vector<TuningCandidate> bucket_candidates(BucketSettings const& now, BucketPlan const& plan,
                                                             BucketChoices const& choices,
                                                             std::function<void(BucketSettings const&)> const& set);

}  // namespace weft
