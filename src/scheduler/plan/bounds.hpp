#pragma once

#include <vector>

#include "scheduler/plan/problem.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// `problem` with nothing merged. Collectives that lie on one path cannot become one, so that of each kind and group at
/// least as many are sent as the longest path has: those pay their latency, all others only what their bytes cost. A
/// task's head and tail are the longest paths that lead to it and from it.
///
/// Sources: J. R. Jackson's preemptive schedule bounds one machine with heads and tails (J. Carlier, "The one-machine
/// sequencing problem", EJOR 11, 1982). Contention: with M seconds of sending of which h before and t after all
/// computing, and C of computing, at most M - h - t seconds overlap, in which (M - h - t) / (1 + s) of C is done: then
/// h + t + C + s / (1 + s) x (M - h - t) are needed where that leaves some of C, else M.
[[nodiscard]] LowerBound lower_bound(Problem const& problem, double contention);

/// Jackson's bound: the shortest preemptive schedule of jobs that each have a time before which they cannot start, a
/// length, and a time that has to pass after their end. O(n log n).
struct HeadBodyTail {
  double head = 0;
  double body = 0;
  double tail = 0;
};
[[nodiscard]] double preemptive_bound(std::vector<HeadBodyTail> jobs);

}  // namespace weft
