#include "scheduler/order/segments.hpp"

#include <algorithm>

namespace weft {

namespace {

/// By place in problem.order(): whether the task has all others before or after it. All later ones come after it where
/// each has one of those it waits for at its place or later; all earlier ones before it likewise.
std::vector<bool> fixed_places(Problem const& problem) {
  auto const& order = problem.order();
  std::size_t const count = order.size();
  std::vector<std::size_t> place(count);
  for (std::size_t i = 0; i < count; ++i) place[static_cast<std::size_t>(order[i])] = i;
  std::vector<bool> fixed(count, true);
  std::size_t reach = 0;  // of all earlier tasks: the latest place of the first that waits for it
  for (std::size_t i = 0; i < count; ++i) {
    fixed[i] = reach <= i;
    std::size_t first = count;
    for (TaskId const later : problem.after(order[i])) first = std::min(first, place[static_cast<std::size_t>(later)]);
    reach = std::max(reach, first);
  }
  std::size_t back = count;  // of all later tasks: the earliest place, plus one, of the last that it waits for
  for (std::size_t i = count; i-- > 0;) {
    fixed[i] = fixed[i] && back >= i + 1;
    std::size_t last = 0;
    for (TaskId const earlier : problem.before(order[i])) {
      last = std::max(last, place[static_cast<std::size_t>(earlier)] + 1);
    }
    back = std::min(back, last);
  }
  return fixed;
}

}  // namespace

std::vector<Segment> segments_of(Problem const& problem) {
  auto const fixed = fixed_places(problem);
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < fixed.size(); ++i) {
    if (fixed[i] || segments.empty() || fixed[i - 1]) segments.push_back({i, i});
    segments.back().end = i + 1;
  }
  return segments;
}

}  // namespace weft
