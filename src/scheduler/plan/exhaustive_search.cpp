#include "scheduler/plan/exhaustive_search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

/// Starts tasks in all orders, one after another, keeping when each one ends.
class AllOrders {
 public:
  AllOrders(Problem const& problem, std::int64_t capacity, std::size_t most)
      : problem_(problem), capacity_(capacity), most_(most), end_(problem.tasks().size(), kNotStarted) {}

  std::optional<double> run() {
    extend(0, 0, {});
    if (looked_at_ > most_ || shortest_ == std::numeric_limits<double>::infinity()) return std::nullopt;
    return shortest_;
  }

 private:
  using FreeFrom = std::array<double, kResources>;
  static constexpr double kNotStarted = -1;

  void extend(std::size_t started, double now, FreeFrom const& free_from) {
    if (started == end_.size()) {
      shortest_ = std::min(shortest_, *std::max_element(end_.begin(), end_.end()));
      return;
    }
    for (std::size_t i = 0; i < end_.size() && looked_at_ <= most_; ++i) {
      auto const task = static_cast<TaskId>(i);
      if (end_[i] != kNotStarted) continue;
      auto const resource = static_cast<std::size_t>(problem_.task(task).resource);
      double start = problem_.task(task).seconds > 0 ? std::max(now, free_from[resource]) : now;
      bool ready = true;
      for (TaskId const earlier : problem_.before(task)) {
        ready = ready && end_[at(earlier)] != kNotStarted;
        start = std::max(start, end_[at(earlier)]);
      }
      if (!ready) continue;
      start = when_there_is_room(task, start);
      double const end = start + problem_.task(task).seconds;
      if (end >= shortest_) continue;  // infinite, too, where there never is room
      ++looked_at_;
      end_[i] = end;
      FreeFrom then = free_from;
      if (problem_.task(task).seconds > 0) then[resource] = end;
      extend(started + 1, start, then);
      end_[i] = kNotStarted;
    }
  }

  /// The first time from `start` on at which enough of what runs has ended.
  double when_there_is_room(TaskId task, double start) const {
    std::vector<double> times{start};
    for (double const end : end_) {
      if (end > start) times.push_back(end);
    }
    std::sort(times.begin(), times.end());
    for (double const time : times) {
      if (live(time) + problem_.made_by(task) <= capacity_) return time;
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
  std::int64_t capacity_;
  std::size_t most_;
  std::vector<double> end_;
  double shortest_ = std::numeric_limits<double>::infinity();
  std::size_t looked_at_ = 0;
};

}  // namespace

std::optional<double> shortest_makespan(Problem const& problem, std::int64_t capacity, std::size_t most_orders) {
  if (problem.tasks().size() > kMostExhaustiveTasks) return std::nullopt;
  if (problem.tasks().empty()) return 0;
  return AllOrders(problem, capacity, most_orders).run();
}

}  // namespace weft
