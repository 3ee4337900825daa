#include "runtime/interval_set.hpp"

#include <algorithm>

namespace weft {

IntervalSet unite(std::span<Interval const> intervals) {
  IntervalSet sorted;
  sorted.reserve(intervals.size());
  std::copy_if(intervals.begin(), intervals.end(), std::back_inserter(sorted),
               [](Interval const& interval) { return interval.start < interval.end; });
  std::sort(sorted.begin(), sorted.end(), [](Interval const& a, Interval const& b) { return a.start < b.start; });
  IntervalSet result;
  for (auto const& interval : sorted) {
    if (result.empty() || result.back().end < interval.start) {
      result.push_back(interval);
    } else {
      result.back().end = std::max(result.back().end, interval.end);
    }
  }
  return result;
}

IntervalSet intersect(IntervalSet const& a, IntervalSet const& b) {
  IntervalSet result;
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() && right != b.end()) {
    Interval const common{std::max(left->start, right->start), std::min(left->end, right->end)};
    if (common.start < common.end) result.push_back(common);
    if (left->end < right->end) {
      ++left;
    } else {
      ++right;
    }
  }
  return result;
}

IntervalSet subtract(IntervalSet const& a, IntervalSet const& b) {
  IntervalSet result;
  auto hole = b.begin();
  for (auto const& whole : a) {
    auto from = whole.start;
    while (hole != b.end() && hole->end <= from) ++hole;
    // `hole` itself does not advance here, because the last hole in `whole` may reach into the next interval.
    for (auto next = hole; next != b.end() && next->start < whole.end; ++next) {
      if (from < next->start) result.push_back({from, next->start});
      from = next->end;
    }
    if (from < whole.end) result.push_back({from, whole.end});
  }
  return result;
}

std::chrono::nanoseconds length(IntervalSet const& set) {
  std::chrono::nanoseconds total{};
  for (auto const& interval : set) total += interval.end - interval.start;
  return total;
}

std::chrono::nanoseconds union_length(std::span<Interval const> intervals) {
  return length(unite(intervals));
}

std::chrono::nanoseconds intersection_length(std::span<Interval const> a, std::span<Interval const> b) {
  return length(intersect(unite(a), unite(b)));
}

}  // namespace weft
