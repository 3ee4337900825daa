#include "scheduler/plan/exact_order.hpp"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace weft {

namespace {

using Set = std::uint32_t;  ///< a bit per task

Set bit(TaskId task) {
  return Set{1} << static_cast<unsigned>(task);
}

class ExactSearch {
 public:
  explicit ExactSearch(Problem const& problem) : problem_(problem), before_(problem.tasks().size(), 0) {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      for (TaskId const earlier : problem.before(static_cast<TaskId>(i))) before_[i] |= bit(earlier);
    }
    for (auto const& storage : problem.storages()) {
      Set users = 0;
      for (TaskId const user : storage.users) users |= bit(user);
      users_.push_back(users);
    }
  }

  std::optional<std::vector<TaskId>> run(std::size_t most_states) {
    Set const all = before_.empty() ? 0 : (~Set{0} >> (32 - before_.size()));
    std::int64_t const first = live(0);
    reach(0, first, 0, kNone);
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
  struct Reached {
    std::int64_t peak;
    Set from;
    TaskId task;
  };
  using Entry = std::pair<std::int64_t, Set>;

  void expand(Set done, std::int64_t peak) {
    std::int64_t const now = live(done);
    for (std::size_t i = 0; i < before_.size(); ++i) {
      auto const task = static_cast<TaskId>(i);
      if ((done & bit(task)) != 0 || (before_[i] & ~done) != 0) continue;
      std::int64_t const meanwhile = now + problem_.made_by(task);
      if (meanwhile <= peak && live(done | bit(task)) <= now) {
        reach(done | bit(task), peak, done, task);
        return;  // the others wait: they lose nothing by it
      }
    }
    for (std::size_t i = 0; i < before_.size(); ++i) {
      auto const task = static_cast<TaskId>(i);
      if ((done & bit(task)) != 0 || (before_[i] & ~done) != 0) continue;
      reach(done | bit(task), std::max(peak, now + problem_.made_by(task)), done, task);
    }
  }

  void reach(Set done, std::int64_t peak, Set from, TaskId task) {
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
      order.push_back(reached.task);
      done = reached.from;
    }
    std::reverse(order.begin(), order.end());
    return order;
  }

  [[nodiscard]] std::int64_t live(Set done) const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < users_.size(); ++i) {
      Storage const& storage = problem_.storages()[i];
      bool const there = storage.first == kNone || (done & bit(storage.first)) != 0;
      if (there && (storage.kept || (users_[i] & ~done) != 0)) bytes += storage.bytes;
    }
    return bytes;
  }

  Problem const& problem_;
  std::vector<Set> before_;
  std::vector<Set> users_;
  std::unordered_map<Set, Reached> seen_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
};

}  // namespace

std::optional<std::vector<TaskId>> exact_order(Problem const& problem, std::size_t most_states) {
  if (problem.tasks().size() > kMostExactTasks) return std::nullopt;
  return ExactSearch(problem).run(most_states);
}

}  // namespace weft
