#include "runtime/interval_set.hpp"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace weft {
namespace {

using std::chrono::nanoseconds;

constexpr int kGrid = 64;
/// The reference: one bit per nanosecond.
using Grid = std::bitset<kGrid>;

Interval between(int start, int end) {
  return {TimePoint(nanoseconds(start)), TimePoint(nanoseconds(end))};
}

Grid paint(std::span<Interval const> intervals) {
  Grid grid;
  for (auto const& interval : intervals) {
    for (auto t = interval.start; t < interval.end; t += nanoseconds(1)) {
      grid.set(static_cast<std::size_t>(t.time_since_epoch().count()));
    }
  }
  return grid;
}

std::vector<Interval> random_intervals(std::mt19937& random) {
  std::vector<Interval> intervals(random() % 9);
  for (auto& interval : intervals) {
    // Often reversed, empty, adjacent, nested and duplicated on so small a grid.
    interval = between(static_cast<int>(random() % kGrid), static_cast<int>(random() % kGrid));
  }
  return intervals;
}

void expect_normal_form(IntervalSet const& set) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    EXPECT_LT(set[i].start, set[i].end);
    if (i > 0) {
      EXPECT_LT(set[i - 1].end, set[i].start);
    }
  }
}

TEST(IntervalSet, AgreesWithAOneNanosecondGrid) {
  std::mt19937 random(4711);
  for (int round = 0; round < 5000; ++round) {
    auto const a = random_intervals(random);
    auto const b = random_intervals(random);
    auto const grid_a = paint(a);
    auto const grid_b = paint(b);
    auto const united_a = unite(a);
    auto const united_b = unite(b);
    SCOPED_TRACE(round);

    expect_normal_form(united_a);
    ASSERT_EQ(paint(united_a), grid_a);
    ASSERT_EQ(paint(intersect(united_a, united_b)), grid_a & grid_b);
    ASSERT_EQ(paint(subtract(united_a, united_b)), grid_a & ~grid_b);
    expect_normal_form(subtract(united_a, united_b));

    ASSERT_EQ(union_length(a).count(), static_cast<long>(grid_a.count()));
    ASSERT_EQ(intersection_length(a, b).count(), static_cast<long>((grid_a & grid_b).count()));
    ASSERT_EQ(intersection_length(a, b), intersection_length(b, a));
  }
}

TEST(IntervalSet, NothingIsEmpty) {
  EXPECT_EQ(union_length({}), nanoseconds(0));
  std::vector<Interval> const some{between(3, 9)};
  EXPECT_EQ(intersection_length(some, {}), nanoseconds(0));
  std::vector<Interval> const none{between(5, 5), between(9, 2)};
  EXPECT_TRUE(unite(none).empty());
}

TEST(IntervalSet, OneHoleMayCutSeveralIntervals) {
  auto const rest = subtract({between(0, 10), between(20, 30), between(40, 50)}, {between(5, 45)});
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0].end, between(5, 5).start);
  EXPECT_EQ(rest[1].start, between(45, 45).start);
}

}  // namespace
}  // namespace weft
