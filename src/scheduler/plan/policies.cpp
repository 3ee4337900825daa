#include "scheduler/plan/policies.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/plan/range_max.hpp"

namespace weft {

namespace {

bool sends(Problem const& problem, TaskId task) {
  return is_link(problem.task(task).resource);
}

std::vector<std::int32_t> positions(std::vector<TaskId> const& serial) {
  std::vector<std::int32_t> position(serial.size());
  for (std::size_t i = 0; i < serial.size(); ++i) position[at(serial[i])] = static_cast<std::int32_t>(i);
  return position;
}

/// Bytes live while each task of the order runs.
RangeMax live_while(Problem const& problem, std::vector<std::int32_t> const& position) {
  auto const end = static_cast<std::int32_t>(position.size());
  RangeMax live(end);
  for (auto const& storage : problem.storages()) {
    std::int32_t last = -1;
    for (TaskId const user : storage.users) last = std::max(last, position[at(user)]);
    live.add(storage.first == kNone ? 0 : position[at(storage.first)], storage.kept ? end : last + 1, storage.bytes);
  }
  return live;
}

/// By task: whether it is a collective, or is made for one collective alone from what is there from the beginning.
std::vector<bool> movable(Problem const& problem) {
  auto const& order = problem.order();
  std::vector<bool> early(order.size(), false);  // by task: all that it waits for is early, too
  std::vector<bool> moves(order.size(), false);
  for (TaskId const task : order) {
    auto const before = problem.before(task);
    early[at(task)] = !sends(problem, task) &&
                      std::all_of(before.begin(), before.end(), [&](TaskId each) { return early[at(each)]; });
  }
  for (std::size_t i = order.size(); i-- > 0;) {
    auto const after = problem.after(order[i]);
    moves[at(order[i])] =
        sends(problem, order[i]) || (early[at(order[i])] && after.size() == 1 && moves[at(after.front())]);
  }
  return moves;
}

/// By task: the place in the serial order of the first task that waits for it; the order's length where none does.
std::vector<std::size_t> first_uses(Problem const& problem, std::vector<TaskId> const& serial) {
  auto const position = positions(serial);
  std::vector<std::size_t> first(serial.size(), serial.size());
  for (TaskId const task : serial) {
    for (TaskId const later : problem.after(task)) first[at(task)] = std::min(first[at(task)], at(position[at(later)]));
  }
  return first;
}

}  // namespace

std::vector<double> urgency_by_order(std::vector<TaskId> const& serial) {
  std::vector<double> urgency(serial.size());
  for (std::size_t i = 0; i < serial.size(); ++i) urgency[at(serial[i])] = static_cast<double>(i);
  return urgency;
}

std::vector<double> urgency_with_rush(Problem const& problem, std::vector<TaskId> const& serial, double rush) {
  auto urgency = urgency_by_order(serial);
  double left = 0;
  for (Task const& task : problem.tasks()) left += task.resource == Resource::compute ? rush * task.seconds : 0;
  auto first = serial.end();
  while (first != serial.begin() && left > 0) {
    --first;
    if (problem.task(*first).resource == Resource::compute) left -= problem.task(*first).seconds;
  }
  std::vector<double> tail(serial.size(), 0);
  for (std::size_t i = serial.size(); i-- > 0;) {
    for (TaskId const later : problem.after(serial[i])) {
      tail[at(serial[i])] = std::max(tail[at(serial[i])], tail[at(later)] + problem.task(later).seconds);
    }
  }
  std::vector<TaskId> last(first, serial.end());
  std::stable_sort(last.begin(), last.end(), [&](TaskId a, TaskId b) { return tail[at(a)] > tail[at(b)]; });
  auto place = static_cast<double>(first - serial.begin());
  for (TaskId const task : last) urgency[at(task)] = place++;
  return urgency;
}

std::vector<TaskId> prefetch_gates(Problem const& problem, std::vector<TaskId> const& serial, int depth) {
  auto const first = first_uses(problem, serial);
  std::vector<TaskId> gates(serial.size(), kNone);
  std::map<std::pair<CollectiveKind, GroupId>, std::vector<TaskId>> sent;
  for (TaskId const task : serial) {
    if (!sends(problem, task)) continue;
    auto const& collective = problem.graph().ops[at(problem.task(task).ops.front())].collective;
    auto& before = sent[{collective.kind, collective.group}];
    if (before.size() >= static_cast<std::size_t>(depth)) {
      auto const use = first[at(before[before.size() - static_cast<std::size_t>(depth)])];
      // A gather cannot wait for a use that comes after its own first use.
      if (use < serial.size() && use < first[at(task)]) gates[at(task)] = serial[use];
    }
    before.push_back(task);
  }
  // No task waits for one that stands behind it.
  auto const position = positions(serial);
  for (std::size_t task = 0; task < gates.size(); ++task) {
    if (gates[task] != kNone && position[at(gates[task])] > position[task]) gates[task] = kNone;
  }
  return gates;
}

std::vector<TaskId> late_gates(Problem const& problem, std::vector<TaskId> const& serial, double lead) {
  auto const first = first_uses(problem, serial);
  std::vector<double> until(serial.size() + 1, 0);  // seconds computed before each place in the order
  for (std::size_t i = 0; i < serial.size(); ++i) {
    Task const& task = problem.task(serial[i]);
    until[i + 1] = until[i] + (task.resource == Resource::compute ? task.seconds : 0);
  }
  std::vector<TaskId> gates(serial.size(), kNone);
  for (std::size_t i = 0; i < serial.size(); ++i) {
    TaskId const task = serial[i];
    if (!sends(problem, task) || first[at(task)] >= serial.size()) continue;
    double const from = until[first[at(task)]] - lead * problem.task(task).seconds;
    if (from <= 0) continue;
    auto const place = std::upper_bound(until.begin(), until.end(), from) - until.begin() - 1;
    auto const gate = static_cast<std::size_t>(std::max<std::ptrdiff_t>(place, 0));
    if (gate < i) gates[at(task)] = serial[gate];
  }
  return gates;
}

std::vector<TaskId> raised_gates(Problem const& problem, std::vector<TaskId> const& serial) {
  auto const position = positions(serial);
  RangeMax live = live_while(problem, position);
  std::int64_t const peak = live.max();
  auto const moves = movable(problem);
  std::vector<TaskId> gates(serial.size(), kNone);
  std::vector<std::int32_t> place = position;
  for (TaskId const task : serial) {
    if (!moves[at(task)]) continue;
    std::int32_t least = 0;  // the place right behind what it waits for
    for (TaskId const earlier : problem.before(task)) {
      bool const stays = place[at(earlier)] == position[at(earlier)];
      least = std::max(least, place[at(earlier)] + (stays ? 1 : 0));
    }
    // The first place from which its results can be held.
    std::int32_t most = position[at(task)];
    while (least < most) {
      std::int32_t const middle = least + (most - least) / 2;
      bool const fits = live.max(middle, position[at(task)]) + problem.made_by(task) <= peak;
      (fits ? most : least) = fits ? middle : middle + 1;
    }
    live.add(most, position[at(task)], problem.made_by(task));
    place[at(task)] = most;
    if (most > 0) gates[at(task)] = serial[at(most - 1)];
  }
  return gates;
}

}  // namespace weft
