#include "scheduler/plan/compute_orders.hpp"

#include <algorithm>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

/// Computing tasks whose results are needed only by sends, directly or by way of more such computing.
std::vector<bool> only_to_be_sent(Problem const& problem, std::vector<TaskId> const& order) {
  std::vector<bool> only(order.size(), false);
  for (std::size_t i = order.size(); i-- > 0;) {
    TaskId const task = order[i];
    auto const later = problem.after(task);
    only[at(task)] = problem.task(task).resource == Resource::compute && !later.empty() &&
                     std::all_of(later.begin(), later.end(),
                                 [&](TaskId each) { return is_link(problem.task(each).resource) || only[at(each)]; });
  }
  return only;
}

}  // namespace

std::vector<TaskId> gradients_first(Problem const& problem, std::vector<TaskId> const& order) {
  auto const only = only_to_be_sent(problem, order);
  // A task that moves is sorted by the place of the last task that it waits for, then by its depth below that one.
  std::vector<std::pair<std::size_t, std::size_t>> key(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    TaskId const task = order[i];
    key[at(task)] = {i, 0};
    if (!only[at(task)]) continue;
    std::pair<std::size_t, std::size_t> last{0, 0};
    for (TaskId const earlier : problem.before(task)) last = std::max(last, key[at(earlier)]);
    key[at(task)] = {last.first, last.second + 1};
  }
  std::vector<TaskId> moved = order;
  std::stable_sort(moved.begin(), moved.end(), [&](TaskId a, TaskId b) { return key[at(a)] < key[at(b)]; });
  return moved;
}

std::vector<TaskId> pulled_forward(Problem const& problem, std::vector<TaskId> const& order, std::size_t begin,
                                   TaskId wanted) {
  std::vector<bool> needed(order.size(), false);
  needed[at(wanted)] = true;
  for (std::size_t i = order.size(); i-- > begin;) {
    if (!needed[at(order[i])]) continue;
    for (TaskId const earlier : problem.before(order[i])) needed[at(earlier)] = true;
  }
  std::vector<TaskId> moved = order;
  std::stable_partition(moved.begin() + static_cast<std::ptrdiff_t>(begin), moved.end(),
                        [&](TaskId task) { return needed[at(task)]; });
  return moved;
}

std::vector<TaskId> pushed_back(Problem const& problem, std::vector<TaskId> const& order, TaskId wanted,
                                std::size_t place) {
  auto const begin = order.begin();
  auto const end = begin + static_cast<std::ptrdiff_t>(std::min(place + 1, order.size()));
  std::vector<bool> moves(order.size(), false);
  auto const any = [&](auto const& tasks) {
    return std::any_of(tasks.begin(), tasks.end(), [&](TaskId each) { return moves[at(each)]; });
  };
  moves[at(wanted)] = true;
  for (auto task = end; task-- != begin;) {
    auto const later = problem.after(*task);
    moves[at(*task)] =
        moves[at(*task)] || (problem.task(*task).resource == Resource::compute && !later.empty() &&
                             std::all_of(later.begin(), later.end(), [&](TaskId each) { return moves[at(each)]; }));
  }
  for (auto task = begin; task != end; ++task) moves[at(*task)] = moves[at(*task)] || any(problem.before(*task));
  std::vector<TaskId> moved(begin, order.end());
  std::stable_partition(moved.begin(), moved.begin() + (end - begin), [&](TaskId task) { return !moves[at(task)]; });
  return moved;
}

}  // namespace weft
