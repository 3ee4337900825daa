#include "scheduler/plan/exhaustive_search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

/// Starts tasks in all orders, one after another, and keeps when each one ends.
class AllOrders {
 public:
  AllOrders(Problem const& problem, OrderLimits const& limits)
      : problem_(problem), limits_(limits), end_(problem.tasks().size(), kNotStarted), tail_(problem.tasks().size()) {
    shortest_.makespan_s = limits.below_s;
    for (std::size_t i = end_.size(); i-- > 0;) {
      TaskId const task = problem.order()[i];
      for (TaskId const later : problem.after(task)) {
        tail_[at(task)] = std::max(tail_[at(task)], tail_[at(later)] + problem.task(later).seconds);
      }
    }
  }

  ShortestOrder run() {
    FreeFrom left{};
    for (Task const& task : problem_.tasks()) left[static_cast<std::size_t>(task.resource)] += task.seconds;
    extend(0, {}, left);
    if (shortest_.order.empty()) shortest_.makespan_s = std::numeric_limits<double>::infinity();
    return std::move(shortest_);
  }

 private:
  using FreeFrom = std::array<double, kResources>;
  static constexpr double kNotStarted = -1;

  /// `left`: seconds of what has not started, by resource.
  void extend(double now, FreeFrom const& free_from, FreeFrom const& left) {
    if (order_.size() == end_.size()) {
      double const makespan = end_.empty() ? 0 : *std::max_element(end_.begin(), end_.end());
      if (makespan < shortest_.makespan_s) {
        shortest_.makespan_s = makespan;
        shortest_.order = order_;
      }
      return;
    }
    for (std::size_t r = 0; r < left.size(); ++r) {
      if (left[r] > 0 && std::max(now, free_from[r]) + left[r] >= shortest_.makespan_s) return;
    }
    for (std::size_t i = 0; i < end_.size() && shortest_.complete; ++i)
      try_next(static_cast<TaskId>(i), now, free_from, left);
  }

  void try_next(TaskId task, double now, FreeFrom const& free_from, FreeFrom const& left) {
    if (end_[at(task)] != kNotStarted) return;
    auto const resource = static_cast<std::size_t>(problem_.task(task).resource);
    double start = std::max(now, free_from[resource]);
    for (TaskId const earlier : problem_.before(task)) {
      if (end_[at(earlier)] == kNotStarted) return;
      start = std::max(start, end_[at(earlier)]);
    }
    start = when_there_is_room(task, start);
    double const end = start + problem_.task(task).seconds;
    // This is infinite also where there never is room.
    if (end + tail_[at(task)] >= shortest_.makespan_s) return;
    if (shortest_.starts == limits_.most_starts) {
      shortest_.complete = false;
      return;
    }
    ++shortest_.starts;
    end_[at(task)] = end;
    order_.push_back(task);
    FreeFrom then_free = free_from;
    FreeFrom then_left = left;
    then_free[resource] = end;
    then_left[resource] -= problem_.task(task).seconds;
    extend(start, then_free, then_left);
    order_.pop_back();
    end_[at(task)] = kNotStarted;
  }

  /// The first time, from `start` on, at which enough of the running tasks have ended to make room.
  double when_there_is_room(TaskId task, double start) const {
    std::vector<double> times{start};
    for (double const end : end_) {
      if (end > start) times.push_back(end);
    }
    std::sort(times.begin(), times.end());
    for (double const time : times) {
      if (live(time) + problem_.made_by(task) <= limits_.capacity) return time;
    }
    return std::numeric_limits<double>::infinity();
  }

  [[nodiscard]] std::int64_t live(double time) const {
    std::int64_t bytes = 0;
    for (auto const& storage : problem_.storages()) {
      if (storage.users.empty() && !storage.kept) continue;
      bool const there = storage.first == kNone || end_[at(storage.first)] != kNotStarted;
      bool const needed = storage.kept || std::any_of(storage.users.begin(), storage.users.end(), [&](TaskId user) {
                            return end_[at(user)] == kNotStarted || end_[at(user)] > time;
                          });
      if (there && needed) bytes += storage.bytes;
    }
    return bytes;
  }

  Problem const& problem_;
  OrderLimits const& limits_;
  std::vector<double> end_;
  std::vector<double> tail_;  ///< seconds of the longest path from the end of each task
  std::vector<TaskId> order_;
  ShortestOrder shortest_;
};

}  // namespace

ShortestOrder try_all_orders(Problem const& problem, OrderLimits const& limits) {
  return AllOrders(problem, limits).run();
}

}  // namespace weft
