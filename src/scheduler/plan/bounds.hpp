#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// A lower bound of the time that any schedule of `problem` (with nothing merged) takes.
///
/// What merging can save: collectives that lie on one path cannot become one, so of each kind and group at least as
/// many are sent as the longest path has. Those pay their latency, all others only what their bytes cost. A task's head
/// and tail are the longest paths that lead to it and from it; on the longest path of all they are also no less than
/// what one link has to send before it and after it (sent_along()).
///
/// Jackson: J. R. Jackson's preemptive schedule bounds one machine with heads and tails (J. Carlier, "The one-machine
/// sequencing problem", EJOR 11, 1982).
///
/// Contention: with M seconds of sending, of which h are sent before and t after all computing, and C seconds of
/// computing, at most M - h - t seconds overlap, in which (M - h - t) / (1 + s) of C is done. So the step takes
///   h + t + C + s / (1 + s) x (M - h - t)
/// where that leaves some of C, else M. h and t are from exposed_sending().
///
/// Launches: launch_bound.hpp.
///
/// Memory: for an operator x let M be what is sent on the busier link and C what is computed, and M(A), C(A), M(D),
/// C(D) the shares of what x needs and of what needs x. By the end of x a schedule has sent M(A) and p more, and has
/// yet to send M - M(A) - p; whatever part of p is used only by what needs x has to fit beside what is live for
/// certain. Whatever p is, f(M(A) + p, C(A)) + f(M - M(A) - p, C(D)) has to pass, where f is the larger of both or,
/// with contention, the formula above with t = 0 before the cut and h = 0 after it. Some x on the critical path are
/// looked at. Launches need memory too: with the h, w, t and v of launch_bound.hpp for z = x, a h is sent before the
/// cut and a t after it in addition, and computing waits for w and v more, whichever of these are best. At the cut
/// where most is live for certain, memory also keeps the launches small that follow it, so that there are many
/// (launches_behind.hpp).
[[nodiscard]] LowerBound lower_bound(Problem const& problem, double contention, std::int64_t capacity);

/// A job of preemptive_bound(): it cannot start before `head`, takes `body`, and `tail` has to pass after its end.
struct HeadBodyTail {
  double head = 0;
  double body = 0;
  double tail = 0;
};
/// Jackson's bound: how long the shortest preemptive schedule of the jobs on one machine takes. O(n log n).
[[nodiscard]] double preemptive_bound(std::vector<HeadBodyTail> jobs);

}  // namespace weft
