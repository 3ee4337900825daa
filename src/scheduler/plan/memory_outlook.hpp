#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/range_max.hpp"

namespace weft {

/// Tracks the memory of a running step, and whether the step could still be ended within the capacity. run_tasks() and
/// send_when_ready() ask it before they start a task.
///
/// There is one order in which all tasks could run one after another (the serial order). Tasks may be started in
/// another order; at any moment those that have not been started could still run one after another in the serial order,
/// once the running ones have ended. The outlook is the most memory that would take. A start is safe where what is live
/// then and the outlook both stay within the capacity: such a step never gets stuck for want of memory. (The banker's
/// algorithm, E. W. Dijkstra, EWD 623, with demands that are known in advance.) A start or an end costs O(storages x
/// log tasks).
class MemoryOutlook {
 public:
  /// `order` has all tasks, each behind what it waits for.
  MemoryOutlook(Problem const& problem, std::vector<TaskId> const& order);

  /// Bytes live now, resident ones included, and the most since the beginning.
  [[nodiscard]] std::int64_t live() const { return live_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  /// The most memory that the tasks not yet started take in the serial order, resident bytes included; 0 once all have
  /// started.
  [[nodiscard]] std::int64_t outlook() const { return std::max<std::int64_t>(0, serial_.max()); }

  /// Where live() and outlook() would be if the task were started now.
  struct Prospect {
    std::int64_t live;
    std::int64_t outlook;
  };
  [[nodiscard]] Prospect prospect(TaskId task);
  /// Whether both would stay within the capacity.
  [[nodiscard]] bool is_safe(TaskId task, std::int64_t capacity);
  void start(TaskId task);
  void end(TaskId task);

  [[nodiscard]] std::int32_t position(TaskId task) const { return position_[static_cast<std::size_t>(task)]; }

 private:
  void change(TaskId task, int sign);
  [[nodiscard]] std::int32_t last_but(std::int32_t storage, TaskId task) const;

  Problem const& problem_;
  std::vector<TaskId> order_;
  std::vector<std::int32_t> position_;
  std::vector<bool> started_;
  // By storage: its users' positions, falling, of which the first `passed_` were started; and how many users have not
  // ended.
  std::vector<std::vector<std::int32_t>> by_position_;
  std::vector<std::size_t> passed_;
  std::vector<std::int32_t> unended_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  RangeMax serial_;  ///< bytes live while each task of the serial order runs
};

}  // namespace weft
