#include "scheduler/plan/policies.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace weft {

namespace {

std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

bool sends(Problem const& problem, TaskId task) {
  Resource const resource = problem.task(task).resource;
  return resource == Resource::between_hosts || resource == Resource::within_host;
}

/// Where in the serial order the first task stands that waits for each one; its length where none does.
std::vector<std::size_t> first_uses(Problem const& problem, std::vector<TaskId> const& serial) {
  std::vector<std::size_t> position(serial.size());
  for (std::size_t i = 0; i < serial.size(); ++i) position[at(serial[i])] = i;
  std::vector<std::size_t> first(serial.size(), serial.size());
  for (TaskId const task : serial) {
    for (TaskId const later : problem.after(task)) first[at(task)] = std::min(first[at(task)], position[at(later)]);
  }
  return first;
}

}  // namespace

std::vector<double> urgency_by_order(std::vector<TaskId> const& serial) {
  std::vector<double> urgency(serial.size());
  for (std::size_t i = 0; i < serial.size(); ++i) urgency[at(serial[i])] = static_cast<double>(i);
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
      // A use that comes after this one's own cannot be waited for.
      if (use < serial.size() && use < first[at(task)]) gates[at(task)] = serial[use];
    }
    before.push_back(task);
  }
  // Nothing waits for what stands behind it.
  std::vector<std::size_t> position(serial.size());
  for (std::size_t i = 0; i < serial.size(); ++i) position[at(serial[i])] = i;
  for (std::size_t task = 0; task < gates.size(); ++task) {
    if (gates[task] != kNone && position[at(gates[task])] > position[task]) gates[task] = kNone;
  }
  return gates;
}

std::vector<TaskId> late_gates(Problem const& problem, std::vector<TaskId> const& serial, double lead) {
  auto const first = first_uses(problem, serial);
  std::vector<double> until(serial.size() + 1, 0);  // computed before each place in the order
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

}  // namespace weft
