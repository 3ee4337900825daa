#include "scheduler/plan/merge_collectives.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "scheduler/graph/at.hpp"
#include "scheduler/graph/list_order.hpp"
#include "scheduler/plan/range_max.hpp"

namespace weft {

namespace {

/// Collectives of fewer bytes than this are small: they are moved along with what they belong to (norms, losses).
constexpr std::int64_t kSmall = std::int64_t{1} << 20;
constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

class Merger {
 public:
  Merger(Problem const& problem, std::vector<TaskId> const& order, MergeRules const& rules)
      : problem_(problem),
        order_(order),
        rules_(rules),
        position_(order.size()),
        ready_(order.size(), -1),
        need_(order.size(), kNever),
        unmerged_(static_cast<std::int32_t>(order.size())),
        memory_(unmerged_) {
    for (std::size_t i = 0; i < order.size(); ++i) position_[at(order[i])] = static_cast<std::int32_t>(i);
    fill_memory();
    memory_ = unmerged_;
  }

  Merged run() {
    Merged merged;
    merged.key.resize(problem_.graph().ops.size());
    merged.earlier.resize(problem_.graph().ops.size());
    for (TaskId const task : order_) merged.key[at(op_of(task))] = position_[at(task)];
    for (auto const& [kind, members] : classes()) {
      bool const gathers = kind.first == CollectiveKind::all_gather || kind.first == CollectiveKind::broadcast;
      std::int64_t const bytes = gathers ? rules_.gather_bytes : rules_.reduce_bytes;
      if (bytes <= 0) continue;
      find_freedom();  // again for each class: merging has moved tasks
      merge(members, bytes, gathers, merged);
    }
    return merged;
  }

 private:
  struct Launch {
    std::vector<TaskId> tasks;
    std::int32_t position = 0;
    std::int32_t first = 0;  ///< the first of the positions that its tasks had
    std::int32_t needed = kNever;
    std::int64_t bytes = 0;
    std::int64_t inputs = 0;  ///< bytes that are kept alive for it alone
    std::int64_t outputs = 0;
  };
  using Class = std::pair<CollectiveKind, GroupId>;

  [[nodiscard]] OpId op_of(TaskId task) const { return problem_.task(task).ops.front(); }
  [[nodiscard]] OpNode const& node(TaskId task) const { return problem_.graph().ops[at(op_of(task))]; }
  [[nodiscard]] bool is_large_collective(TaskId task) const {
    return node(task).kind == OpKind::collective && node(task).collective.bytes >= kSmall;
  }

  std::map<Class, std::vector<TaskId>> classes() const {
    std::map<Class, std::vector<TaskId>> classes;
    for (TaskId const task : order_) {
      OpNode const& op = node(task);
      if (op.kind == OpKind::collective) classes[{op.collective.kind, op.collective.group}].push_back(task);
    }
    return classes;
  }

  /// Finds the earliest and the latest place at which each task could stand if the others stayed where they are. A task
  /// that prepares a collective, without anything large having been sent before it (a weight's cast), moves along with
  /// the collective; so does a task that follows one, without anything large being sent after it (a weight's update).
  /// Collectives themselves stay.
  void find_freedom() {
    std::fill(ready_.begin(), ready_.end(), -1);
    std::fill(need_.begin(), need_.end(), kNever);
    std::vector<bool> quiet(order_.size());  // by task: it sends nothing large, nor does any before it (then: after it)
    auto const moves = [&](TaskId task) { return quiet[at(task)] && node(task).kind != OpKind::collective; };
    for (TaskId const task : problem_.order()) {
      bool all = !is_large_collective(task);
      for (TaskId const earlier : problem_.before(task)) {
        all = all && quiet[at(earlier)];
        ready_[at(task)] = std::max(ready_[at(task)], moves(earlier) ? ready_[at(earlier)] : position_[at(earlier)]);
      }
      quiet[at(task)] = all;
    }
    for (std::size_t i = order_.size(); i-- > 0;) {
      TaskId const task = problem_.order()[i];
      bool all = !is_large_collective(task);
      for (TaskId const later : problem_.after(task)) {
        all = all && quiet[at(later)];
        need_[at(task)] = std::min(need_[at(task)], moves(later) ? need_[at(later)] : position_[at(later)]);
      }
      quiet[at(task)] = all;
    }
  }

  void fill_memory() {
    auto const end = static_cast<std::int32_t>(order_.size());
    for (auto const& storage : problem_.storages()) {
      std::int32_t last = -1;
      for (TaskId const user : storage.users) last = std::max(last, position_[at(user)]);
      unmerged_.add(storage.first == kNone ? 0 : position_[at(storage.first)], storage.kept ? end : last + 1,
                    storage.bytes);
    }
  }

  /// Bytes that the task uses and that no task after it needs.
  [[nodiscard]] std::int64_t last_inputs(TaskId task) const {
    std::int64_t bytes = 0;
    for (auto const id : problem_.uses(task)) {
      Storage const& storage = problem_.storages()[at(id)];
      if (storage.kept || storage.first == task) continue;
      auto const last = std::max_element(storage.users.begin(), storage.users.end(),
                                         [&](TaskId a, TaskId b) { return position_[at(a)] < position_[at(b)]; });
      if (*last == task) bytes += storage.bytes;
    }
    return bytes;
  }

  void merge(std::vector<TaskId> const& members, std::int64_t most_bytes, bool gathers, Merged& merged) {
    std::int64_t total = 0;
    for (TaskId const task : members) total += node(task).collective.bytes;
    std::int64_t passed = 0;
    Launch launch;
    for (TaskId const task : members) {
      std::int64_t const bytes = node(task).collective.bytes;
      std::int64_t const before = passed - launch.bytes;
      std::int64_t const after = total - passed - bytes;
      double most = static_cast<double>(most_bytes);
      if (rules_.taper > 0) most = std::min(most, rules_.taper * static_cast<double>(gathers ? before : after));
      bool const fits = static_cast<double>(launch.bytes + bytes) <= most;
      passed += bytes;
      if (!launch.tasks.empty() && fits &&
          node(task).seconds.has_value() == node(launch.tasks.front()).seconds.has_value() &&
          join(launch, task, rules_.share)) {
        continue;
      }
      finish(launch, merged);
      launch = {.tasks = {task},
                .position = position_[at(task)],
                .first = position_[at(task)],
                .needed = need_[at(task)],
                .bytes = bytes,
                .inputs = last_inputs(task),
                .outputs = problem_.made_by(task)};
    }
    finish(launch, merged);
  }

  bool join(Launch& launch, TaskId task, double share) {
    std::int32_t const here = position_[at(task)];
    // A task that waits for nothing from `first` on waits for none of the launch's collectives.
    if (ready_[at(task)] < launch.first) {
      std::int64_t const made = problem_.made_by(task);
      if (!extend(launch.position, here, {made, launch.outputs + made, share})) return false;
    } else if (launch.needed > here) {
      if (!extend(launch.position + 1, here + 1, {launch.inputs, launch.inputs + last_inputs(task), share}))
        return false;
      launch.position = here;
    } else {
      return false;
    }
    launch.tasks.push_back(task);
    launch.needed = std::min(launch.needed, need_[at(task)]);
    launch.bytes += node(task).collective.bytes;
    launch.inputs += last_inputs(task);
    launch.outputs += problem_.made_by(task);
    return true;
  }

  struct Growth {
    std::int64_t bytes;  ///< bytes that are live longer than before
    std::int64_t all;    ///< all bytes that the launch then keeps live longer
    double share;        ///< the share of the room that `all` may take
  };
  bool extend(std::int32_t begin, std::int32_t end, Growth const& growth) {
    if (begin >= end) return true;
    auto const room = static_cast<double>(rules_.capacity - unmerged_.max(begin, end));
    if (static_cast<double>(growth.all) > growth.share * room) return false;
    if (memory_.max(begin, end) + growth.bytes > rules_.capacity) return false;
    memory_.add(begin, end, growth.bytes);
    return true;
  }

  void finish(Launch const& launch, Merged& merged) {
    if (launch.tasks.size() < 2) return;
    std::vector<OpId>& ops = merged.launches.emplace_back();
    for (TaskId const task : launch.tasks) {
      ops.push_back(op_of(task));
      merged.key[at(op_of(task))] = launch.position;
      merged.earlier[at(op_of(task))] = launch.position < position_[at(task)];
      position_[at(task)] = launch.position;
    }
  }

  Problem const& problem_;
  std::vector<TaskId> const& order_;
  MergeRules const& rules_;
  std::vector<std::int32_t> position_;
  std::vector<std::int32_t> ready_;  ///< by task: the last position among the tasks that it waits for
  std::vector<std::int32_t> need_;   ///< by task: the first position among the tasks that wait for it
  RangeMax unmerged_;                ///< bytes live while each task of the order runs
  RangeMax memory_;                  ///< likewise, with the launches that were merged
};

}  // namespace

Merged merge_collectives(Problem const& problem, std::vector<TaskId> const& order, MergeRules const& rules) {
  return Merger(problem, order, rules).run();
}

std::vector<TaskId> serial_order_by(Merged const& merged, Problem const& problem) {
  std::vector<double> of(problem.tasks().size(), std::numeric_limits<double>::infinity());
  std::vector<bool> pulls(of.size(), false);
  for (std::size_t op = 0; op < merged.key.size(); ++op) {
    auto const task = at(problem.task_of(static_cast<OpId>(op)));
    of[task] = std::min(of[task], merged.key[op]);
    pulls[task] = pulls[task] || merged.earlier[op];
  }
  for (std::size_t i = of.size(); i-- > 0;) {
    TaskId const task = problem.order()[i];
    if (!pulls[at(task)]) continue;
    for (TaskId const earlier : problem.before(task)) {
      if (of[at(earlier)] <= of[at(task)]) continue;
      of[at(earlier)] = of[at(task)];
      pulls[at(earlier)] = true;
    }
  }
  return list_order(problem, of.size(), [&](TaskId id) { return of[at(id)]; });
}

}  // namespace weft
