#include "scheduler/plan/loosened_order.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

/// The share of its slack by which a send is moved. With none or all of it plans lose more where links are slower than
/// expected (0.1, 0.25, 0.5, 0.75 and 1 were tried on Llama 3 8B).
constexpr double kShare = 0.5;

/// By task: whether it frees more than it makes.
std::vector<bool> freeing(Problem const& problem, std::vector<TaskId> const& started) {
  std::vector<TaskId> last(problem.storages().size(), kNone);  // by storage: the last of its users to start
  for (TaskId const task : started) {
    for (auto const id : problem.uses(task)) last[at(id)] = task;
  }
  std::vector<std::int64_t> freed(started.size(), 0);
  for (std::size_t id = 0; id < last.size(); ++id) {
    Storage const& storage = problem.storages()[id];
    if (last[id] != kNone && !storage.kept) freed[at(last[id])] += storage.bytes;
  }
  std::vector<bool> frees(started.size());
  for (TaskId const task : started) frees[at(task)] = freed[at(task)] > problem.made_by(task);
  return frees;
}

}  // namespace

std::vector<TaskId> loosened_order(Problem const& problem, Run const& run) {
  auto const frees = freeing(problem, run.started);
  std::vector<double> latest(run.started.size());  // by task: the latest start that delays nothing
  std::vector<double> key(run.started.size());
  std::array<double, kResources> next{};  // by resource: the latest such start of its next task
  next.fill(run.makespan_s);
  for (auto task = run.started.rbegin(); task != run.started.rend(); ++task) {
    TaskRun const& mine = run.tasks[at(*task)];
    Resource const resource = problem.task(*task).resource;
    auto const slot = static_cast<std::size_t>(resource);
    latest[at(*task)] = mine.start_s;
    if (is_link(resource) && !problem.after(*task).empty() && !frees[at(*task)]) {
      double end = next[slot];
      for (TaskId const later : problem.after(*task)) end = std::min(end, latest[at(later)]);
      latest[at(*task)] += std::max(0.0, end - mine.end_s);
    }
    key[at(*task)] = mine.start_s + kShare * (latest[at(*task)] - mine.start_s);
    next[slot] = latest[at(*task)];
  }
  auto order = run.started;
  std::stable_sort(order.begin(), order.end(), [&](TaskId a, TaskId b) { return key[at(a)] < key[at(b)]; });
  return order;
}

}  // namespace weft
