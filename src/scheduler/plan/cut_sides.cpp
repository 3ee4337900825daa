#include "scheduler/plan/cut_sides.hpp"

#include <algorithm>

#include "scheduler/graph/at.hpp"

namespace weft {

std::vector<Side> sides_of(Problem const& problem, TaskId cut) {
  std::vector<Side> side(problem.tasks().size(), Side::neither);
  auto const spread = [&](Side to, auto const& neighbours) {
    std::vector<TaskId> open{cut};
    while (!open.empty()) {
      TaskId const task = open.back();
      open.pop_back();
      for (TaskId const next : neighbours(task)) {
        if (side[at(next)] != Side::neither) continue;
        side[at(next)] = to;
        open.push_back(next);
      }
    }
  };
  side[at(cut)] = Side::before;
  spread(Side::before, [&](TaskId task) { return problem.before(task); });
  spread(Side::after, [&](TaskId task) { return problem.after(task); });
  return side;
}

std::int64_t brings(Problem const& problem, TaskId task, std::vector<Side> const& side) {
  std::int64_t bytes = 0;
  for (auto const id : problem.uses(task)) {
    Storage const& storage = problem.storages()[at(id)];
    if (storage.first != task || storage.users.size() < 2) continue;
    bool const later = std::all_of(storage.users.begin(), storage.users.end(),
                                   [&](TaskId user) { return user == task || side[at(user)] == Side::after; });
    if (later) bytes += storage.bytes;
  }
  return bytes;
}

}  // namespace weft
