#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "weft/bucketer.hpp"

namespace weft {

using TimePoint = std::chrono::steady_clock::time_point;

/// A half-open stretch of time [start, end) on one lane.
struct Interval {
  TimePoint start;
  TimePoint end;
};

/// Total length of the union of `intervals`; overlapping parts count once.
[[nodiscard]] std::chrono::nanoseconds union_length(std::span<Interval const> intervals);
/// Length of (union of a) ∩ (union of b).
[[nodiscard]] std::chrono::nanoseconds intersection_length(std::span<Interval const> a, std::span<Interval const> b);

/// One bucket of an OverlapReport; times in milliseconds from the step's start.
struct BucketOverlap {
  std::size_t bytes = 0;
  double ready_ms = 0;
  double started_ms = 0;
  double finished_ms = 0;
  double exposed_ms = 0;  ///< part of [started, finished) during which this rank did not compute
};

/// What a training step's communication cost one rank, from real timestamps.
///
/// C is the union of the compute intervals, M the union of the buckets' [started, finished): where collectives overlap
/// one another, time counts once. A collective's time includes waiting for slower ranks. Always 0 <= hidden <= hideable
/// <= communication and bound <= length of C and M together.
struct OverlapReport {
  double step_ms = 0;           ///< end − start of the step
  double compute_ms = 0;        ///< |C|
  double communication_ms = 0;  ///< |M|
  double hidden_ms = 0;         ///< |C ∩ M|
  double exposed_ms = 0;        ///< communication_ms − hidden_ms
  double idle_ms = 0;           ///< step − |C ∪ M|: waiting for data, for a lock, for a core that others have
  /// The most communication that any launch order could have hidden under the same computation. Walks C from the first
  /// ready time on: a bucket adds its communication time to the backlog when it becomes ready, computing drains the
  /// backlog as fast as time passes; what was drained is hideable. Computation after both the last bucket was ready and
  /// the last collective had ended is left out: it (the optimizer) may have needed the result. So neither what exceeds
  /// the computation that was left, nor the time of a bucket that only the end of backward completes, counts as
  /// hideable. Time that several buckets share is given to the one that was ready first.
  double hideable_ms = 0;
  /// No launch order ends the step sooner, were it never idle: max(|C|, |C before the first bucket was ready| + |M|).
  /// The second term is the communication plus the computation that cannot hide any.
  double bound_ms = 0;
  std::vector<BucketOverlap> buckets;  ///< in the order given

  [[nodiscard]] double hidden_percent()
      const noexcept;  ///< 100 · hidden / communication; 100 when nothing was communicated
  /// 100 · hidden / hideable: how much of what could be hidden was; 100 when nothing could.
  [[nodiscard]] double hidden_of_hideable_percent() const noexcept;

  /// Pure. `compute`: this rank's compute intervals inside the step, in any order; `buckets`: as from
  /// Bucketer::timings().
  [[nodiscard]] static OverlapReport build(Interval step, std::span<Interval const> compute,
                                           std::span<BucketTiming const> buckets);
};

/// A table for a terminal or a log: one line per bucket (index, bytes, ready, started, finished, exposed ms), then the
/// totals. Ends with a newline. `collectives`: what each bucket's collective is called, where they are not all the
/// same; as many as buckets, or none.
[[nodiscard]] std::string format_overlap_report(OverlapReport const& report, std::string const& title,
                                                std::span<std::string const> collectives = {});

}  // namespace weft
