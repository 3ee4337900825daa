#include "weft/overlap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <sstream>

namespace weft {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// Milliseconds after an origin that is not zero, as on a real clock.
TimePoint at(double ms) {
  return TimePoint(std::chrono::hours(5)) +
         std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double, std::milli>(ms));
}

Interval between(double start, double end) {
  return {at(start), at(end)};
}

BucketTiming bucket(std::size_t bytes, double ready, double started, double finished) {
  return {.bytes = bytes, .ready = at(ready), .started = at(started), .finished = at(finished)};
}

OverlapReport report(double step, std::vector<Interval> const& compute, std::vector<BucketTiming> const& buckets) {
  return OverlapReport::build(between(0, step), compute, buckets);
}

TEST(OverlapReport, NothingCommunicated) {
  auto const r = report(12, {between(1, 11)}, {});
  EXPECT_DOUBLE_EQ(r.step_ms, 12);
  EXPECT_DOUBLE_EQ(r.compute_ms, 10);
  EXPECT_DOUBLE_EQ(r.communication_ms, 0);
  EXPECT_DOUBLE_EQ(r.hideable_ms, 0);
  EXPECT_DOUBLE_EQ(r.bound_ms, 10);
  EXPECT_DOUBLE_EQ(r.hidden_percent(), 100);
  EXPECT_DOUBLE_EQ(r.hidden_of_hideable_percent(), 100);
}

TEST(OverlapReport, FullyHidden) {
  auto const r = report(20, {between(0, 20)}, {bucket(100, 5, 6, 9), bucket(200, 10, 11, 15)});
  EXPECT_DOUBLE_EQ(r.communication_ms, 7);
  EXPECT_DOUBLE_EQ(r.hidden_ms, 7);
  EXPECT_DOUBLE_EQ(r.exposed_ms, 0);
  EXPECT_DOUBLE_EQ(r.hideable_ms, 7);
  EXPECT_DOUBLE_EQ(r.bound_ms, 20);
  EXPECT_DOUBLE_EQ(r.hidden_percent(), 100);
  ASSERT_EQ(r.buckets.size(), 2U);
  EXPECT_EQ(r.buckets[1].bytes, 200U);
  EXPECT_DOUBLE_EQ(r.buckets[1].ready_ms, 10);
  EXPECT_DOUBLE_EQ(r.buckets[1].started_ms, 11);
  EXPECT_DOUBLE_EQ(r.buckets[1].finished_ms, 15);
  EXPECT_DOUBLE_EQ(r.buckets[1].exposed_ms, 0);
}

TEST(OverlapReport, FullyExposedThoughMostCouldHide) {
  // No overlap: both collectives follow backward. The first was ready at 4 and could have hidden; the last could not.
  auto const r = report(17, {between(0, 10), between(16, 17)}, {bucket(1, 4, 10, 14), bucket(1, 10, 14, 16)});
  EXPECT_DOUBLE_EQ(r.communication_ms, 6);
  EXPECT_DOUBLE_EQ(r.hidden_ms, 0);
  EXPECT_DOUBLE_EQ(r.exposed_ms, 6);
  EXPECT_DOUBLE_EQ(r.hideable_ms, 4);
  EXPECT_DOUBLE_EQ(r.bound_ms, 11);  // the computation alone: 4 + 6 = 10 is less
  EXPECT_DOUBLE_EQ(r.hidden_percent(), 0);
  EXPECT_DOUBLE_EQ(r.buckets[0].exposed_ms, 4);
  EXPECT_DOUBLE_EQ(r.buckets[1].exposed_ms, 2);
}

TEST(OverlapReport, TheLastBucketsOwnTimeIsNotHideable) {
  // The only bucket is complete with the end of backward: what the optimizer computes later cannot hide it.
  auto const r = report(16, {between(0, 10), between(13, 16)}, {bucket(1, 10, 10, 13)});
  EXPECT_DOUBLE_EQ(r.hideable_ms, 0);
  EXPECT_DOUBLE_EQ(r.bound_ms, 13);
  EXPECT_DOUBLE_EQ(r.exposed_ms, 3);
}

TEST(OverlapReport, AnOptimizerThatRanDuringTheLastCollectiveCouldHideIt) {
  // Updating bucket 0 at 12…14 while bucket 1 is on its way shows that this computation did not need bucket 1.
  auto const r = report(15, {between(0, 10), between(12, 15)}, {bucket(1, 5, 5, 8), bucket(1, 10, 10, 14)});
  EXPECT_DOUBLE_EQ(r.hidden_ms, 5);
  EXPECT_DOUBLE_EQ(r.hideable_ms, 5);
}

TEST(OverlapReport, CommunicationBoundStepsCannotHideMoreThanTheyCompute) {
  // Ready at 2 of 10 with 30 of communication: 8 can hide, and the step lasts at least 2 + 30.
  auto const r = report(32, {between(0, 10)}, {bucket(1, 2, 2, 22), bucket(1, 6, 22, 32)});
  EXPECT_DOUBLE_EQ(r.hideable_ms, 8);
  EXPECT_DOUBLE_EQ(r.hidden_ms, 8);
  EXPECT_DOUBLE_EQ(r.bound_ms, 32);
  EXPECT_DOUBLE_EQ(r.hidden_of_hideable_percent(), 100);
}

TEST(OverlapReport, WaitingForTheSecondBucketIsNoFaultOfTheOrder) {
  // Between 5 (the first is done) and 8 (the second is ready) there is nothing to send: only 2 + 1 can hide.
  auto const r = report(14, {between(0, 9)}, {bucket(1, 3, 3, 5), bucket(1, 8, 8, 14)});
  EXPECT_DOUBLE_EQ(r.hideable_ms, 3);
  EXPECT_DOUBLE_EQ(r.hidden_ms, 3);
  EXPECT_DOUBLE_EQ(r.bound_ms, 11);
}

TEST(OverlapReport, TimeOfOverlappingCollectivesCountsOnce) {
  auto const r = report(20, {between(0, 6), between(4, 10)}, {bucket(1, 2, 4, 12), bucket(1, 3, 6, 14)});
  EXPECT_DOUBLE_EQ(r.compute_ms, 10);
  EXPECT_DOUBLE_EQ(r.communication_ms, 10);
  EXPECT_DOUBLE_EQ(r.hidden_ms, 6);
  EXPECT_DOUBLE_EQ(r.exposed_ms, 4);
  EXPECT_DOUBLE_EQ(r.hideable_ms, 8);
  EXPECT_DOUBLE_EQ(r.bound_ms, 12);
}

/// Independent of the library: hideable by stepping through time one unit after another, for serial collectives.
int hideable_by_stepping(std::vector<bool> const& computing, std::vector<std::array<int, 3>> const& buckets) {
  int last = 0;
  for (auto const& [ready, start, end] : buckets) last = std::max({last, ready, end});
  int backlog = 0;
  int hidden = 0;
  for (int t = 0; t < static_cast<int>(computing.size()); ++t) {
    for (auto const& [ready, start, end] : buckets) backlog += ready == t ? end - start : 0;
    if (t < last && computing[static_cast<std::size_t>(t)] && backlog > 0) {
      ++hidden;
      --backlog;
    }
  }
  return hidden;
}

TEST(OverlapReport, BoundsHoldAndMatchAStepwiseModelOnRandomSteps) {
  constexpr int kLength = 80;
  std::mt19937 random(99);
  auto const up_to = [&random](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit + 1)); };
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(round);
    std::vector<bool> computing(kLength, false);
    std::vector<Interval> compute;
    for (int n = up_to(5); n > 0; --n) {
      auto const start = up_to(kLength - 10);
      auto const end = start + up_to(10);
      compute.push_back(between(start, end));
      for (int t = start; t < end; ++t) computing[static_cast<std::size_t>(t)] = true;
    }
    std::vector<std::array<int, 3>> buckets;
    std::vector<BucketTiming> timings;
    for (int now = up_to(10), n = 1 + up_to(4); n > 0; --n) {
      auto const ready = up_to(now);
      auto const end = now + up_to(8);
      buckets.push_back({ready, now, end});
      timings.push_back(bucket(1, ready, now, end));
      now = end + up_to(4);
    }
    auto const r = report(kLength, compute, timings);
    std::vector<Interval> both = compute;
    for (auto const& timing : timings) both.push_back({timing.started, timing.finished});

    constexpr double kNear = 1e-6;
    ASSERT_NEAR(r.hideable_ms, hideable_by_stepping(computing, buckets), kNear);
    ASSERT_NEAR(r.hidden_ms + r.exposed_ms, r.communication_ms, kNear);
    ASSERT_LE(r.hidden_ms, r.hideable_ms + kNear);
    ASSERT_LE(r.hideable_ms, r.communication_ms + kNear);
    ASSERT_GE(r.bound_ms, r.compute_ms - kNear);
    ASSERT_LE(r.bound_ms, static_cast<double>(union_length(both).count()) * 1e-6 + kNear);
    double exposed = 0;
    for (auto const& each : r.buckets) exposed += each.exposed_ms;
    ASSERT_NEAR(exposed, r.exposed_ms, kNear);  // serial collectives share no time
  }
}

TEST(OverlapReport, OverlappingCollectivesKeepTheInvariants) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> time(0, 50);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Interval> compute;
    std::vector<BucketTiming> buckets;
    for (int i = 0; i < 4; ++i) {
      auto const a = time(random);
      compute.push_back(between(a, a + time(random) / 5));
      auto const ready = time(random);
      auto const started = ready + time(random) / 10;
      buckets.push_back(bucket(1, ready, started, started + time(random) / 3));
    }
    auto const r = report(100, compute, buckets);
    ASSERT_LE(r.hidden_ms, r.hideable_ms + 1e-6);
    ASSERT_LE(r.hideable_ms, r.communication_ms + 1e-6);
    ASSERT_GE(r.hidden_percent(), 0);
    ASSERT_LE(r.hidden_percent(), 100 + 1e-9);
  }
}

TEST(FormatOverlapReport, ShowsEveryBucketAndTotal) {
  auto const r = report(17, {between(0, 10), between(16, 17)},
                        {bucket(512, 4, 10, 14), bucket(std::size_t{25} << 20, 10, 14, 16)});
  auto const text = format_overlap_report(r, "step 7, link 20us:2GB/s (emulated)");
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);

  ASSERT_EQ(lines.size(), 12U) << text;
  EXPECT_EQ(lines[0], "step 7, link 20us:2GB/s (emulated)");
  EXPECT_EQ(lines[1], "  bucket       bytes   ready ms started ms finished ms  exposed ms");
  EXPECT_EQ(lines[2], "       0       512 B      4.000     10.000      14.000       4.000");
  EXPECT_EQ(lines[3], "       1    25.0 MiB     10.000     14.000      16.000       2.000");
  EXPECT_EQ(lines[4], "  step               17.000 ms");
  EXPECT_EQ(lines[7], "  hidden              0.000 ms   0.0 % of communication");
  EXPECT_EQ(lines[8], "  exposed             6.000 ms");
  EXPECT_EQ(lines[9], "  idle                0.000 ms   neither: waiting for data, a lock, or a core");
  EXPECT_EQ(lines[10],
            "  hideable            4.000 ms   by computation after buckets were ready; 0.0 % of it was hidden");
  EXPECT_EQ(lines[11], "  bound              11.000 ms   no order ends the step sooner");
  EXPECT_EQ(text.back(), '\n');
}

TEST(FormatOverlapReport, IdleTimeIsLeftOutOfTheBoundByName) {
  auto const r = report(100, {between(40, 50)}, {bucket(512, 45, 48, 60)});
  EXPECT_DOUBLE_EQ(r.idle_ms, 80);
  auto const text = format_overlap_report(r, "step");
  EXPECT_NE(text.find("  idle               80.000 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("idle time left out, no order"), std::string::npos) << text;
}

TEST(FormatOverlapReport, ABoundThatLateBucketsRaiseSaysSo) {
  auto const r = report(17, {between(0, 10)}, {bucket(512, 9, 10, 14), bucket(1024, 10, 14, 16)});
  auto const text = format_overlap_report(r, "step");
  EXPECT_NE(text.find("no order ends the step sooner; with earlier or smaller buckets 10.000 ms might do"),
            std::string::npos)
      << text;
}

TEST(FormatOverlapReport, NamesCollectivesThatDiffer) {
  auto const r = report(17, {between(0, 10)}, {bucket(512, 4, 10, 14), bucket(1024, 10, 14, 16)});
  std::vector<std::string> const names{"all_gather", "reduce_scatter"};
  auto const text = format_overlap_report(r, "step 7", names);
  EXPECT_NE(text.find("  bucket  collective           bytes   ready ms started ms finished ms  exposed ms\n"
                      "       0  all_gather           512 B      4.000     10.000      14.000       4.000\n"
                      "       1  reduce_scatter     1.0 KiB     10.000     14.000      16.000       2.000\n"
                      "  step "),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace weft
