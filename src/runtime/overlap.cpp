#include "weft/overlap.hpp"

#include <algorithm>
#include <vector>

#include "runtime/interval_set.hpp"

namespace weft {

namespace {

using std::chrono::nanoseconds;

double to_ms(nanoseconds duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

/// Communication that becomes possible at `ready`.
struct Release {
  TimePoint ready;
  nanoseconds duration;
};

/// One release per bucket, in ready order. Time that several collectives share goes to the bucket that was ready first:
/// that is the most favourable choice, and so keeps what follows from it an upper bound.
std::vector<Release> releases_of(std::span<BucketTiming const> buckets) {
  std::vector<BucketTiming> sorted(buckets.begin(), buckets.end());
  // A collective that was launched before its bucket was marked ready was evidently possible at its launch.
  for (auto& bucket : sorted) bucket.ready = std::min(bucket.ready, bucket.started);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](BucketTiming const& a, BucketTiming const& b) { return a.ready < b.ready; });
  std::vector<Release> releases;
  IntervalSet taken;
  for (auto const& bucket : sorted) {
    Interval const interval{bucket.started, bucket.finished};
    releases.push_back({bucket.ready, length(subtract(unite({&interval, 1}), taken))});
    taken.push_back(interval);
    taken = unite(taken);
  }
  return releases;
}

/// Computation during which a collective could have run: see OverlapReport::hideable_ms.
IntervalSet usable_compute(IntervalSet const& compute, std::span<BucketTiming const> buckets, TimePoint first_ready) {
  auto end = first_ready;
  for (auto const& bucket : buckets) end = std::max({end, bucket.ready, bucket.finished});
  return intersect(compute, {{first_ready, end}});
}

/// What a work-conserving, preemptive server that runs only inside `compute` gets done: no order hides more than that.
nanoseconds hideable(IntervalSet const& compute, std::span<Release const> releases) {
  nanoseconds hidden{};
  nanoseconds backlog{};
  auto next = releases.begin();
  for (auto const& stretch : compute) {
    auto now = stretch.start;
    while (now < stretch.end) {
      for (; next != releases.end() && next->ready <= now; ++next) backlog += next->duration;
      auto const until = next == releases.end() ? stretch.end : std::min(stretch.end, next->ready);
      auto const done = std::min<nanoseconds>(backlog, until - now);
      hidden += done;
      backlog -= done;
      now = until;
    }
  }
  return hidden;
}

BucketOverlap describe(BucketTiming const& bucket, TimePoint origin, IntervalSet const& compute) {
  Interval const interval{bucket.started, bucket.finished};
  return {.bytes = bucket.bytes,
          .ready_ms = to_ms(bucket.ready - origin),
          .started_ms = to_ms(bucket.started - origin),
          .finished_ms = to_ms(bucket.finished - origin),
          .exposed_ms = to_ms(length(subtract(unite({&interval, 1}), compute)))};
}

double percent(double part, double whole) noexcept {
  return whole > 0 ? 100 * part / whole : 100;
}

}  // namespace

double OverlapReport::hidden_percent() const noexcept {
  return percent(hidden_ms, communication_ms);
}

double OverlapReport::hidden_of_hideable_percent() const noexcept {
  return percent(hidden_ms, hideable_ms);
}

OverlapReport OverlapReport::build(Interval step, std::span<Interval const> compute,
                                   std::span<BucketTiming const> buckets) {
  auto const computing = unite(compute);
  std::vector<Interval> collectives;
  for (auto const& bucket : buckets) collectives.push_back({bucket.started, bucket.finished});
  auto const communicating = unite(collectives);

  OverlapReport report;
  report.step_ms = to_ms(step.end - step.start);
  report.compute_ms = to_ms(length(computing));
  report.communication_ms = to_ms(length(communicating));
  report.hidden_ms = to_ms(length(intersect(computing, communicating)));
  report.exposed_ms = to_ms(length(subtract(communicating, computing)));
  report.idle_ms = std::max(0.0, report.step_ms - report.compute_ms - report.exposed_ms);
  report.bound_ms = report.compute_ms;
  for (auto const& bucket : buckets) report.buckets.push_back(describe(bucket, step.start, computing));
  if (buckets.empty()) return report;

  auto const releases = releases_of(buckets);
  auto const first_ready = releases.front().ready;
  report.hideable_ms = to_ms(hideable(usable_compute(computing, buckets, first_ready), releases));
  auto const before = length(intersect(computing, {{TimePoint::min(), first_ready}}));
  report.bound_ms = std::max(report.compute_ms, to_ms(before) + report.communication_ms);
  return report;
}

}  // namespace weft
