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
  /// Of them, what merged collectives pay once: all that their bytes do not take by the algorithm that sends them
  /// fastest. Of measured ones the latency that the model says, no more than was measured.
  double latency_s = 0;
};

/// Whether what runs there is a collective.
[[nodiscard]] inline bool is_link(Resource resource) {
  return resource == Resource::between_hosts || resource == Resource::within_host;
}

/// Memory that tensors share; there from the start of `first` (from the beginning if kNone) to the end of the last of
/// `users`, `first` among them, or to the end of the step if kept.
struct Storage {
  std::int64_t bytes = 0;
  TaskId first = kNone;
  bool kept = false;
  std::vector<TaskId> users{};  ///< by rising id
};

/// What is to be planned: a graph on a cluster, with some collectives merged. Lists by task are in one array each.
class Problem {
 public:
  /// Each operator of `launches` (collectives of one kind and group, at least two) belongs to one of them; all others
  /// are tasks of their own.
  /// @throws Error{invalid_argument} where merging would make a cycle, naming operators of it.
  Problem(OpGraph const& graph, CostModel const& model, std::vector<std::vector<OpId>> const& launches = {});

  [[nodiscard]] OpGraph const& graph() const { return *graph_; }
  [[nodiscard]] CostModel const& model() const { return *model_; }
  [[nodiscard]] std::vector<Task> const& tasks() const { return tasks_; }
  [[nodiscard]] std::vector<Storage> const& storages() const { return storages_; }
  [[nodiscard]] Task const& task(TaskId id) const { return tasks_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] TaskId task_of(OpId op) const { return task_of_[static_cast<std::size_t>(op)]; }
  /// Tasks that have to end before `task` starts; that wait for it; storages that it uses. By rising id.
  [[nodiscard]] std::span<TaskId const> before(TaskId task) const { return before_.of(task); }
  [[nodiscard]] std::span<TaskId const> after(TaskId task) const { return after_.of(task); }
  [[nodiscard]] std::span<std::int32_t const> uses(TaskId task) const { return uses_.of(task); }
  /// In which a tensor lies.
  [[nodiscard]] std::int32_t storage_of(TensorId tensor) const { return storage_of_[static_cast<std::size_t>(tensor)]; }
  /// Bytes of storages that are there from the start of `task`.
  [[nodiscard]] std::int64_t made_by(TaskId task) const { return made_by_[static_cast<std::size_t>(task)]; }
  /// Tasks in an order in which they can run.
  [[nodiscard]] std::vector<TaskId> const& order() const { return order_; }
  /// Bytes that are there all the time: kept, and not first written in the step.
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
