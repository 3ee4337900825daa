#include "scheduler/order/serial_order.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/exact_order.hpp"

namespace weft {

namespace {

/// Counts memory while tasks run one after another.
class Account {
 public:
  explicit Account(Problem const& problem) : problem_(problem), left_(problem.storages().size()) {
    for (std::size_t i = 0; i < left_.size(); ++i) {
      Storage const& storage = problem.storages()[i];
      left_[i] = storage.users.size();
      if (storage.first == kNone && (storage.kept || left_[i] > 0)) live_ += storage.bytes;
    }
  }

  /// How many more (or fewer) bytes would be live after the task than are now.
  [[nodiscard]] std::int64_t change_by(TaskId task) const {
    std::int64_t bytes = 0;
    for (auto const id : problem_.uses(task)) {
      Storage const& storage = problem_.storages()[at(id)];
      if (storage.first == task) bytes += storage.bytes;
      if (left_[at(id)] == 1 && !storage.kept) bytes -= storage.bytes;
    }
    return bytes;
  }

  void run(TaskId task) {
    live_ += problem_.made_by(task);
    peak_ = std::max(peak_, live_);
    for (auto const id : problem_.uses(task)) {
      if (--left_[at(id)] == 0 && !problem_.storages()[at(id)].kept) live_ -= problem_.storages()[at(id)].bytes;
    }
  }
  [[nodiscard]] std::int64_t peak() const { return std::max(peak_, live_); }
  [[nodiscard]] std::int64_t live() const { return live_; }

  /// Takes back the tasks that ran since `live` and `peak` had these values.
  void undo(std::vector<TaskId> const& run, std::int64_t live, std::int64_t peak) {
    for (TaskId const task : run) {
      for (auto const id : problem_.uses(task)) ++left_[at(id)];
    }
    live_ = live;
    peak_ = peak;
  }

 private:
  Problem const& problem_;
  std::vector<std::size_t> left_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
};

class JustInTime {
 public:
  JustInTime(Problem const& problem, std::vector<TaskId> const& order, std::int64_t limit)
      : problem_(problem),
        order_(order),
        account_(problem),
        waits_for_(order.size()),
        done_(order.size(), false),
        limit_(limit) {
    for (std::size_t i = 0; i < order.size(); ++i) waits_for_[i] = problem.before(static_cast<TaskId>(i)).size();
    mark_late();
  }

  std::vector<TaskId> run() {
    for (TaskId const task : order_) {
      if (!late_[at(task)]) emit(task);
    }
    for (TaskId const task : order_) emit(task);  // the rest: tasks that nothing needs
    return std::move(result_);
  }

 private:
  /// A task is late where it is made in a few steps from what is there from the beginning, without freeing any of that
  /// (a weight that is cast and gathered).
  void mark_late() {
    late_.assign(order_.size(), false);
    std::vector<int> steps(order_.size(), 1);
    for (TaskId const task : order_) {
      bool late = problem_.made_by(task) > 0;
      for (TaskId const earlier : problem_.before(task)) {
        late = late && late_[at(earlier)];
        steps[at(task)] = std::max(steps[at(task)], steps[at(earlier)] + 1);
      }
      for (auto const id : problem_.uses(task)) {
        Storage const& storage = problem_.storages()[at(id)];
        late = late && (storage.first != kNone || storage.kept || storage.users.size() > 1);
      }
      late_[at(task)] = late && steps[at(task)] <= kLateSteps;
    }
  }

  /// Runs all that `task` waits for, in the order given, then the task, then tasks that can run now and free memory.
  void emit(TaskId task) {
    std::vector<TaskId> stack{task};
    while (!stack.empty()) {
      TaskId const top = stack.back();
      if (done_[at(top)]) {
        stack.pop_back();
        continue;
      }
      bool ready = true;
      auto const before = problem_.before(top);
      for (auto earlier = before.rbegin(); earlier != before.rend(); ++earlier) {
        if (!done_[at(*earlier)]) {
          stack.push_back(*earlier);
          ready = false;
        }
      }
      if (!ready) continue;
      stack.pop_back();
      run(top);
      run_what_frees(top);
    }
  }

  void run(TaskId task) {
    done_[at(task)] = true;
    account_.run(task);
    result_.push_back(task);
    for (TaskId const later : problem_.after(task)) --waits_for_[at(later)];
  }

  [[nodiscard]] bool can_run(TaskId task) const { return !done_[at(task)] && waits_for_[at(task)] == 0; }

  void run_what_frees(TaskId since) {
    std::vector<TaskId> look{since};
    while (!look.empty()) {
      TaskId const from = look.back();
      look.pop_back();
      for (TaskId const later : problem_.after(from)) {
        if (can_run(later)) try_chain(later, look);
      }
      if (look.empty()) {
        // A task that freed nothing when it could first run may free something now.
        for (TaskId const task : std::exchange(waiting_, {})) {
          if (can_run(task)) try_chain(task, look);
        }
      }
    }
  }

  /// Runs `first` and some of the tasks that can run after it (a weight's gradient, its reduction), if together they
  /// leave less than there was and never take more than the limit.
  void try_chain(TaskId first, std::vector<TaskId>& look) {
    std::int64_t const live = account_.live();
    std::int64_t const peak = account_.peak();
    std::vector<TaskId> chain;
    TaskId next = first;
    while (next != kNone && static_cast<int>(chain.size()) < kLongestChain) {
      if (account_.live() + problem_.made_by(next) > limit_ && problem_.made_by(next) > 0) break;
      run(next);
      chain.push_back(next);
      if (account_.live() <= live) {
        look.insert(look.end(), chain.begin(), chain.end());
        return;
      }
      next = best_after(chain);
    }
    for (TaskId const task : chain) {
      done_[at(task)] = false;
      for (TaskId const later : problem_.after(task)) ++waits_for_[at(later)];
    }
    result_.resize(result_.size() - chain.size());
    account_.undo(chain, live, peak);
    if (waiting_.size() < kMostWaiting) waiting_.push_back(first);
  }

  /// Of the tasks that can run since the chain ran, the one that leaves least live.
  [[nodiscard]] TaskId best_after(std::vector<TaskId> const& chain) const {
    TaskId best = kNone;
    for (TaskId const task : chain) {
      for (TaskId const later : problem_.after(task)) {
        if (can_run(later) && (best == kNone || account_.change_by(later) < account_.change_by(best))) best = later;
      }
    }
    return best;
  }

  static constexpr int kLateSteps = 3;
  static constexpr int kLongestChain = 6;
  static constexpr std::size_t kMostWaiting = 16;

  Problem const& problem_;
  std::vector<TaskId> const& order_;
  Account account_;
  std::vector<std::size_t> waits_for_;
  std::vector<bool> done_;
  std::vector<bool> late_;
  std::int64_t limit_;
  std::vector<TaskId> waiting_;  ///< can run, but would not have freed anything
  std::vector<TaskId> result_;
};

}  // namespace

std::int64_t serial_peak(Problem const& problem, std::vector<TaskId> const& order) {
  Account account(problem);
  for (TaskId const task : order) account.run(task);
  return account.peak();
}

std::vector<std::int64_t> serial_live(Problem const& problem, std::vector<TaskId> const& order) {
  Account account(problem);
  std::vector<std::int64_t> live;
  live.reserve(order.size());
  for (TaskId const task : order) {
    live.push_back(account.live() + problem.made_by(task));
    account.run(task);
  }
  return live;
}

std::int64_t serial_bound(Problem const& problem) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < problem.tasks().size(); ++i) {
    std::int64_t bytes = 0;
    for (auto const id : problem.uses(static_cast<TaskId>(i))) {
      Storage const& storage = problem.storages()[at(id)];
      if (!storage.kept || storage.first != kNone) bytes += storage.bytes;
    }
    most = std::max(most, bytes);
  }
  return problem.resident_bytes() + most;
}

std::vector<TaskId> just_in_time(Problem const& problem, std::vector<TaskId> const& order, std::int64_t limit) {
  return JustInTime(problem, order, limit).run();
}

std::vector<TaskId> as_soon_as_possible(Problem const& problem) {
  std::vector<double> start(problem.tasks().size(), 0);
  for (TaskId const task : problem.order()) {
    double const end = start[at(task)] + problem.task(task).seconds;
    for (TaskId const later : problem.after(task)) start[at(later)] = std::max(start[at(later)], end);
  }
  auto order = problem.order();
  std::stable_sort(order.begin(), order.end(), [&](TaskId a, TaskId b) { return start[at(a)] < start[at(b)]; });
  return order;
}

std::vector<TaskId> depth_first(Problem const& problem) {
  // The memory it takes to make a task's results from nothing, as if nothing were shared (R. Sethi and J. D. Ullman,
  // 1970).
  std::vector<std::int64_t> need(problem.tasks().size(), 0);
  for (TaskId const task : problem.order()) {
    std::int64_t most = problem.made_by(task);
    for (TaskId const earlier : problem.before(task)) most = std::max(most, need[at(earlier)]);
    need[at(task)] = most;
  }
  std::vector<bool> done(problem.tasks().size(), false);
  std::vector<TaskId> order;
  std::vector<TaskId> stack;
  for (TaskId const root : problem.order()) {
    if (!problem.after(root).empty()) continue;
    stack.push_back(root);
    while (!stack.empty()) {
      TaskId const top = stack.back();
      if (done[at(top)]) {
        stack.pop_back();
        continue;
      }
      auto const first = static_cast<std::ptrdiff_t>(stack.size());
      for (TaskId const earlier : problem.before(top)) {
        if (!done[at(earlier)]) stack.push_back(earlier);
      }
      if (static_cast<std::ptrdiff_t>(stack.size()) == first) {
        stack.pop_back();
        done[at(top)] = true;
        order.push_back(top);
      } else {
        std::stable_sort(stack.begin() + first, stack.end(),
                         [&](TaskId a, TaskId b) { return need[at(a)] < need[at(b)]; });
      }
    }
  }
  return order;
}

std::vector<TaskId> low_memory_order(Problem const& problem) {
  if (auto exact = exact_order(problem)) return *std::move(exact);
  std::vector<std::vector<TaskId>> const starts = {problem.order(), as_soon_as_possible(problem), depth_first(problem)};
  std::vector<TaskId> best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  auto const consider = [&](std::vector<TaskId> order) {
    auto const peak = serial_peak(problem, order);
    if (peak >= least) return false;
    least = peak;
    best = std::move(order);
    return true;
  };
  for (auto const& start : starts) {
    consider(start);
    consider(just_in_time(problem, start, least));
    // Starting from an order that takes less, just_in_time() makes one that takes no more.
    while (consider(just_in_time(problem, best, least - 1))) {
    }
  }
  return best;
}

}  // namespace weft
