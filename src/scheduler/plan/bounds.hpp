#pragma once

#include <vector>

#include "scheduler/order/problem.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// `problem` with nothing merged. Collectives that lie on one path cannot become one, so that of each kind and group at
/// least as many are sent as the longest path has: those pay their latency, all others only what their bytes cost. A
/// task's head and tail are the longest paths that lead to it and from it, and on the longest path of all no less than
/// what one link has to send before it and after it (sent_along()).
///
/// Sources: J. R. Jackson's preemptive schedule bounds one machine with heads and tails (J. Carlier, "The one-machine
/// sequencing problem", EJOR 11, 1982). Contention: with M seconds of sending of which h before and t after all
/// computing, and C of computing, at most M - h - t seconds overlap, in which (M - h - t) / (1 + s) of C is done: then
/// h + t + C + s / (1 + s) x (M - h - t) are needed where that leaves some of C, else M (exposed_sending() has h and
/// t).
///
/// Launches: launch_bound.hpp.
///
/// Memory: for an operator x let M be what is sent on the busier link and C what is computed, and M(A), C(A), M(D),
/// C(D) the shares of those that x needs and of those that need x. By the end of x a schedule has sent M(A) and p more,
/// and has yet to send M - M(A) - p; all of p that only what needs x uses has to fit beside what is live for certain.
/// Whatever p is, f(M(A) + p, C(A)) + f(M - M(A) - p, C(D)) has to pass, where f is the larger of both or, with
/// contention, the formula above with t = 0 before the cut and h = 0 after it. Looked at for some x on the critical
/// path. Launches need memory too: with the h, w, t and v of launch_bound.hpp for z = x, before it and after it a h and
/// a t more are sent, and computing waits for w and v more, whichever of these are best. At the cut with most that is
/// live for certain memory also keeps the launches small that follow it, so that they are many (launches_behind.hpp).
[[nodiscard]] LowerBound lower_bound(Problem const& problem, double contention, std::int64_t capacity);

/// Jackson's bound: the shortest preemptive schedule of jobs that each have a time before which they cannot start, a
/// length, and a time that has to pass after their end. O(n log n).
struct HeadBodyTail {
  double head = 0;
  double body = 0;
  double tail = 0;
};
[[nodiscard]] double preemptive_bound(std::vector<HeadBodyTail> jobs);

}  // namespace weft
