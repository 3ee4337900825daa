#include "scheduler/order/segments.hpp"

#include <algorithm>

namespace weft {

namespace {

/// By place in problem.order(): whether all other tasks are either before or after the task. All later ones come after
/// it where each of them waits for something at its place or later; for earlier ones it is the other way round.
std::vector<bool> fixed_places(Problem const& problem) {
  auto const& order = problem.order();
  std::size_t const count = order.size();
  std::vector<std::size_t> place(count);
  for (std::size_t i = 0; i < count; ++i) place[static_cast<std::size_t>(order[i])] = i;
  std::vector<bool> fixed(count, true);
  std::size_t reach = 0;  // over all earlier tasks: the latest place of the first task that waits for one
  for (std::size_t i = 0; i < count; ++i) {
    fixed[i] = reach <= i;
    std::size_t first = count;
    for (TaskId const later : problem.after(order[i])) first = std::min(first, place[static_cast<std::size_t>(later)]);
    reach = std::max(reach, first);
  }
  std::size_t back = count;  // over all later tasks: the earliest place, plus one, of the last task that one waits for
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
