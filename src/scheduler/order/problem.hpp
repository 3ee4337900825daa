#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/cost_model.hpp"
#include "weft/op_graph.hpp"

namespace weft {

/// Index into Problem::tasks.
using TaskId = std::int32_t;

/// An operator, or several collectives of one kind and group that are merged into one.
struct Task {
  std::vector<OpId> ops{};
  Resource resource = Resource::compute;
  double seconds = 0;  ///< when nothing else runs
  /// The part of `seconds` that merged collectives pay only once: all but the time that their bytes take by the
  /// algorithm that sends them fastest. Of a measured collective it is the model's latency, but no more than was
  /// measured.
  double latency_s = 0;
};

/// Whether collectives run on this resource.
[[nodiscard]] inline bool is_link(Resource resource) {
  return resource == Resource::between_hosts || resource == Resource::within_host;
}

/// Memory that one or more tensors share. It is there from the start of `first` (from the beginning of the step if
/// kNone) to the end of the last of `users`, which include `first`; if `kept`, to the end of the step.
struct Storage {
  std::int64_t bytes = 0;
  TaskId first = kNone;
  bool kept = false;
  std::vector<TaskId> users{};  ///< by rising id
};

/// What is to be planned: a graph on a cluster, with some collectives merged into one task each. Most of the planner
/// works on this instead of the graph.
class Problem {
 public:
  /// Each entry of `launches` (at least two collectives of one kind and group) becomes one task; every other operator
  /// is a task of its own. `graph` and `model` have to outlive the problem.
  /// @throws Error{invalid_argument} where merging would make a cycle, naming operators of it.
  Problem(OpGraph const& graph, CostModel const& model, std::vector<std::vector<OpId>> const& launches = {});

  [[nodiscard]] OpGraph const& graph() const { return *graph_; }
  [[nodiscard]] CostModel const& model() const { return *model_; }
  [[nodiscard]] std::vector<Task> const& tasks() const { return tasks_; }
  [[nodiscard]] std::vector<Storage> const& storages() const { return storages_; }
  [[nodiscard]] Task const& task(TaskId id) const { return tasks_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] TaskId task_of(OpId op) const { return task_of_[static_cast<std::size_t>(op)]; }
  /// before(): tasks that have to end before `task` starts. after(): tasks that wait for it. uses(): storages that it
  /// uses. All by rising id.
  [[nodiscard]] std::span<TaskId const> before(TaskId task) const { return before_.of(task); }
  [[nodiscard]] std::span<TaskId const> after(TaskId task) const { return after_.of(task); }
  [[nodiscard]] std::span<std::int32_t const> uses(TaskId task) const { return uses_.of(task); }
  /// The storage in which a tensor lies.
  [[nodiscard]] std::int32_t storage_of(TensorId tensor) const { return storage_of_[static_cast<std::size_t>(tensor)]; }
  /// Bytes of the storages that `task` makes: they are there from its start.
  [[nodiscard]] std::int64_t made_by(TaskId task) const { return made_by_[static_cast<std::size_t>(task)]; }
  /// All tasks, in an order in which they can run.
  [[nodiscard]] std::vector<TaskId> const& order() const { return order_; }
  /// Bytes that are there during the whole step: of storages that are kept and not first written in the step.
  [[nodiscard]] std::int64_t resident_bytes() const { return resident_bytes_; }

 private:
  struct Lists {
    std::vector<std::int32_t> items;
    std::vector<std::size_t> begin{0};
    [[nodiscard]] std::span<std::int32_t const> of(std::int32_t list) const {
      auto const at = static_cast<std::size_t>(list);
      return std::span(items).subspan(begin[at], begin[at + 1] - begin[at]);
    }
  };

  void make_tasks(std::vector<std::vector<OpId>> const& launches);
  void check_times() const;
  void set_collective_seconds(Task& task, GroupPlacement const& placement) const;
  void make_edges();
  void make_storages();
  void make_order();
  static Lists turned(Lists const& lists, std::size_t size);

  OpGraph const* graph_;
  CostModel const* model_;
  std::vector<Task> tasks_;
  std::vector<TaskId> task_of_;
  Lists before_;
  Lists after_;
  Lists uses_;
  std::vector<Storage> storages_;
  std::vector<std::int32_t> storage_of_;
  std::vector<std::int64_t> made_by_;
  std::vector<TaskId> order_;
  std::int64_t resident_bytes_ = 0;
};

}  // namespace weft
