#include "scheduler/order/greedy_order.hpp"

#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>

#include "scheduler/graph/at.hpp"

namespace weft {

namespace {

class Greedy {
 public:
  explicit Greedy(Problem const& problem)
      : problem_(problem), waits_for_(problem.tasks().size()), done_(waits_for_.size(), false) {
    for (auto const& storage : problem.storages()) left_.push_back(storage.users.size());
  }

  std::vector<TaskId> run() {
    for (std::size_t i = 0; i < waits_for_.size(); ++i) {
      waits_for_[i] = problem_.before(static_cast<TaskId>(i)).size();
      if (waits_for_[i] == 0) offer(static_cast<TaskId>(i));
    }
    std::vector<TaskId> order;
    while (!ready_.empty()) {
      TaskId const task = std::get<2>(ready_.top());
      ready_.pop();
      if (done_[at(task)]) continue;  // it has run already: it was offered again at a lower price
      done_[at(task)] = true;
      order.push_back(task);
      for (auto const id : problem_.uses(task)) {
        if (--left_[at(id)] == 1) offer_last_user(problem_.storages()[at(id)]);
      }
      for (TaskId const later : problem_.after(task)) {
        if (--waits_for_[at(later)] == 0) offer(later);
      }
    }
    return order;
  }

 private:
  void offer(TaskId task) {
    std::int64_t change = problem_.made_by(task);
    for (auto const id : problem_.uses(task)) {
      Storage const& storage = problem_.storages()[at(id)];
      if (left_[at(id)] == 1 && !storage.kept) change -= storage.bytes;
    }
    ready_.emplace(change, problem_.made_by(task), task);
  }

  /// From now on running this task would free the storage.
  void offer_last_user(Storage const& storage) {
    for (TaskId const user : storage.users) {
      if (!done_[at(user)] && waits_for_[at(user)] == 0) offer(user);
    }
  }

  using Entry = std::tuple<std::int64_t, std::int64_t, TaskId>;
  Problem const& problem_;
  std::vector<std::size_t> waits_for_;
  std::vector<bool> done_;
  std::vector<std::size_t> left_;  ///< users of each storage that have not run
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
};

}  // namespace

std::vector<TaskId> greedy_order(Problem const& problem) {
  return Greedy(problem).run();
}

}  // namespace weft
