#include "scheduler/order/least_live.hpp"

#include <algorithm>
#include <cstddef>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/max_flow.hpp"

namespace weft {

namespace {

enum class Side : std::uint8_t { free, before, after };  ///< beside the task that runs, which itself counts as after

class Cut {
 public:
  Cut(Problem const& problem, TaskId task) : problem_(problem), task_(task), side_(problem.tasks().size(), Side::free) {
    mark(Side::before);
    mark(Side::after);
    // The nodes are tasks, storages, and the two ends.
    source_ = static_cast<std::int32_t>(problem.tasks().size() + problem.storages().size());
  }

  LeastLive run() {
    MaxFlow flow(at(source_) + 2);
    std::int64_t fixed = 0;
    for (std::size_t i = 0; i < problem_.storages().size(); ++i)
      fixed += add_storage(static_cast<std::int32_t>(i), flow);
    for (std::size_t i = 0; i < side_.size(); ++i) {
      if (side_[i] != Side::free) continue;
      for (TaskId const earlier : problem_.before(static_cast<TaskId>(i))) {
        if (side_[at(earlier)] == Side::free) flow.add_edge(static_cast<TaskId>(i), earlier, MaxFlow::kUnlimited);
      }
    }
    LeastLive least{.bytes = fixed + flow.run(source_, source_ + 1), .ran = flow.source_side(source_)};
    least.ran.resize(side_.size());
    for (std::size_t i = 0; i < side_.size(); ++i) least.ran[i] = least.ran[i] || side_[i] == Side::before;
    return least;
  }

 private:
  void mark(Side side) {
    std::vector<TaskId> look{task_};
    side_[at(task_)] = Side::after;
    while (!look.empty()) {
      TaskId const from = look.back();
      look.pop_back();
      for (TaskId const next : side == Side::before ? problem_.before(from) : problem_.after(from)) {
        if (side_[at(next)] != Side::free) continue;
        side_[at(next)] = side;
        look.push_back(next);
      }
    }
  }

  /// Bytes that are live in any case, or the edges that count them where they are.
  std::int64_t add_storage(std::int32_t id, MaxFlow& flow) const {
    Storage const& storage = problem_.storages()[at(id)];
    if (storage.bytes == 0 || (storage.users.empty() && !storage.kept)) return 0;
    if (storage.first == task_) return storage.bytes;
    bool const made = storage.first == kNone || side_[at(storage.first)] == Side::before;
    if (!made && side_[at(storage.first)] == Side::after) return 0;
    bool needed = storage.kept;
    bool decided = true;  // by the users that run before, or after, in any case
    for (TaskId const user : storage.users) {
      needed = needed || side_[at(user)] == Side::after;
      decided = decided && side_[at(user)] != Side::free;
    }
    if (made && needed) return storage.bytes;
    if (made && decided) return 0;
    std::int32_t const from = made ? source_ : storage.first;
    if (needed) {
      flow.add_edge(from, source_ + 1, storage.bytes);
      return 0;
    }
    auto const node = static_cast<std::int32_t>(side_.size()) + id;
    flow.add_edge(from, node, storage.bytes);
    for (TaskId const user : storage.users) {
      if (side_[at(user)] == Side::free && user != storage.first) flow.add_edge(node, user, MaxFlow::kUnlimited);
    }
    return 0;
  }

  Problem const& problem_;
  TaskId task_;
  std::vector<Side> side_;
  std::int32_t source_;
};

}  // namespace

LeastLive least_live(Problem const& problem, TaskId task) {
  return Cut(problem, task).run();
}

}  // namespace weft
