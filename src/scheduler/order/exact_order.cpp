#include "scheduler/order/exact_order.hpp"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace weft {

namespace {

using Set = std::uint64_t;  ///< one bit for each task that is ordered
constexpr std::size_t kMostTasks = 64;

Set bit(std::size_t task) {
  return Set{1} << task;
}

class ExactSearch {
 public:
  ExactSearch(Problem const& problem, std::span<TaskId const> tasks, std::vector<bool> const& done)
      : tasks_(tasks), before_(tasks.size(), 0), makes_(tasks.size(), 0) {
    std::unordered_map<TaskId, std::size_t> place;
    for (std::size_t i = 0; i < tasks.size(); ++i) place.emplace(tasks[i], i);
    std::vector<std::int32_t> used;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      makes_[i] = problem.made_by(tasks[i]);
      for (TaskId const earlier : problem.before(tasks[i])) {
        if (auto const found = place.find(earlier); found != place.end()) before_[i] |= bit(found->second);
      }
      used.insert(used.end(), problem.uses(tasks[i]).begin(), problem.uses(tasks[i]).end());
    }
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (auto const id : used) add(problem.storages()[static_cast<std::size_t>(id)], place, done);
  }

  std::optional<std::vector<TaskId>> run(std::size_t most_states) {
    Set const all = before_.empty() ? 0 : (~Set{0} >> (kMostTasks - before_.size()));
    reach(0, live(0), 0, 0);
    while (!open_.empty()) {
      auto const [peak, done] = open_.top();
      open_.pop();
      if (peak > seen_.at(done).peak) continue;
      if (done == all) return path_to(done);
      if (seen_.size() > most_states) return std::nullopt;
      expand(done, peak);
    }
    return std::nullopt;
  }

 private:
  /// A storage whose lifetime depends on the order that is looked for.
  struct Part {
    std::int64_t bytes;
    Set first;  ///< 0: it is there before any of these tasks runs
    Set users;
    bool kept;  ///< until after the last of these tasks
  };
  struct Reached {
    std::int64_t peak;
    Set from;
    std::size_t task;
  };
  using Entry = std::pair<std::int64_t, Set>;

  void add(Storage const& storage, std::unordered_map<TaskId, std::size_t> const& place,
           std::vector<bool> const& done) {
    Part part{.bytes = storage.bytes, .first = 0, .users = 0, .kept = storage.kept};
    for (TaskId const user : storage.users) {
      auto const found = place.find(user);
      if (found != place.end()) part.users |= bit(found->second);
      part.kept = part.kept || (found == place.end() && !done[static_cast<std::size_t>(user)]);
    }
    if (auto const found = place.find(storage.first); found != place.end()) {
      part.first = bit(found->second);
    } else if (storage.first != kNone && !done[static_cast<std::size_t>(storage.first)]) {
      return;  // a later task makes it
    }
    parts_.push_back(part);
  }

  [[nodiscard]] bool can_run(std::size_t task, Set done) const {
    return (done & bit(task)) == 0 && (before_[task] & ~done) == 0;
  }

  void expand(Set done, std::int64_t peak) {
    std::int64_t const now = live(done);
    for (std::size_t task = 0; task < before_.size(); ++task) {
      if (!can_run(task, done)) continue;
      if (now + makes_[task] <= peak && live(done | bit(task)) <= now) {
        reach(done | bit(task), peak, done, task);
        return;  // the others can wait without loss
      }
    }
    for (std::size_t task = 0; task < before_.size(); ++task) {
      if (can_run(task, done)) reach(done | bit(task), std::max(peak, now + makes_[task]), done, task);
    }
  }

  void reach(Set done, std::int64_t peak, Set from, std::size_t task) {
    auto const [entry, is_new] = seen_.try_emplace(done, Reached{peak, from, task});
    if (!is_new) {
      if (entry->second.peak <= peak) return;
      entry->second = {peak, from, task};
    }
    open_.emplace(peak, done);
  }

  std::vector<TaskId> path_to(Set done) const {
    std::vector<TaskId> order;
    while (done != 0) {
      Reached const& reached = seen_.at(done);
      order.push_back(tasks_[reached.task]);
      done = reached.from;
    }
    std::reverse(order.begin(), order.end());
    return order;
  }

  /// Bytes that are live once `done` has run. Storages that none of the ordered tasks uses are not counted.
  [[nodiscard]] std::int64_t live(Set done) const {
    std::int64_t bytes = 0;
    for (Part const& part : parts_) {
      bool const there = part.first == 0 || (done & part.first) != 0;
      if (there && (part.kept || (part.users & ~done) != 0)) bytes += part.bytes;
    }
    return bytes;
  }

  std::span<TaskId const> tasks_;
  std::vector<Set> before_;
  std::vector<std::int64_t> makes_;
  std::vector<Part> parts_;
  std::unordered_map<Set, Reached> seen_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
};

}  // namespace

std::optional<std::vector<TaskId>> exact_order(Problem const& problem, std::size_t most_states) {
  if (problem.tasks().size() > kMostExactTasks) return std::nullopt;
  std::vector<bool> const nothing(problem.tasks().size(), false);
  return ExactSearch(problem, problem.order(), nothing).run(most_states);
}

std::optional<std::vector<TaskId>> exact_order_of(Problem const& problem, std::span<TaskId const> tasks,
                                                  std::vector<bool> const& done, std::size_t most_states) {
  if (tasks.size() > kMostTasks) return std::nullopt;
  return ExactSearch(problem, tasks, done).run(most_states);
}

}  // namespace weft
