#pragma once

#include <chrono>
#include <cstddef>
#include <iosfwd>
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

/// What a training step's communication cost, from real timestamps.
struct OverlapReport {
  double step_ms = 0;
  double compute_ms = 0;        ///< union of the compute intervals
  double communication_ms = 0;  ///< union of the collectives' intervals
  double hidden_ms = 0;         ///< communication during computation
  double exposed_ms = 0;        ///< communication_ms − hidden_ms
  /// Most that any launch order could have hidden: communication_ms less what must follow the last gradient (the last bucket's
  /// own time) and less what exceeds the compute time after the first bucket was ready.
  double hideable_ms = 0;
  /// No order ends the step sooner: max(compute, compute before the first bucket was ready + communication).
  double bound_ms = 0;
  std::vector<BucketOverlap> buckets;

  [[nodiscard]] double hidden_percent() const noexcept;  ///< 100 · hidden / communication; 100 when nothing was communicated

  /// Pure. `compute`: this rank's compute intervals inside the step; `buckets`: as from Bucketer::timings().
  [[nodiscard]] static OverlapReport build(Interval step, std::span<Interval const> compute, std::span<BucketTiming const> buckets);
};

}  // namespace weft
