#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// LowerBound::launches_s. The idea: a step that waits little for its first and last launches has small ones, so it
/// needs many.
///
/// For one link let m be the seconds of all bytes, a the least latency of any launch, and for a task x let n(x) be at
/// most the seconds of the bytes that x needs. The k-th launch ends at the earliest at k a + b(k), where b(k) are the
/// seconds of all bytes so far. What starts before the end of launch k + 1 needs no more than k launches, and of that
/// no more can be computed than G(b(k)): all x with n(x) <= b(k), and of those that need one collective each what fits
/// into b(k) (a knapsack, filled by seconds computed for a second sent). While something is sent, computing is slower
/// by the factor 1 + s. So until then computing is idle for at least w seconds of its full speed, where
///   w >= ((k + 1) a + b(k + 1)) / (1 + s) - G(b(k)).
/// So w limits how large each launch can be; as G grows, the largest b(k + 1) is best for all that follow. With the
/// largest launches, all that is needed before a task z is sent in at least h(w) launches, all of which end before z
/// starts. Seen from the end of the step the same holds for what has to be sent after z: t(v) launches, within v idle
/// seconds. Neither launches nor idle seconds are counted twice, as z lies between. With C seconds of computing a step
/// takes
///   min over w, v of max(m + a (h + t), C + w + v + s / (1 + s) (m + a (h + t))).
///
/// Returns the highest bound over the links and some z of `path` (each task needs the one before it). O(tasks + edges),
/// and what the places and launches that are looked at take.
[[nodiscard]] double launch_bound(Problem const& problem, std::vector<TaskId> const& path, double contention);

}  // namespace weft
