#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/range_max.hpp"

namespace weft {

/// The memory of a step that runs, and of how it could be ended from where it stands.
///
/// Tasks have an order in which one after another they could all run (the serial order). They are started in another
/// one; at any moment those that have not been started could still run one after another in the serial order, once what
/// runs has ended. The outlook is the most memory that would take. A start is safe where what is live then and the
/// outlook both stay within the capacity: such a step never gets stuck for want of memory. (The banker's algorithm,
/// E. W. Dijkstra, EWD 623, with demands that are known in advance.) A start or an end costs O(storages x log tasks).
class MemoryOutlook {
 public:
  /// `order` has all tasks, each behind what it waits for.
  MemoryOutlook(Problem const& problem, std::vector<TaskId> const& order);

  /// Bytes live now, resident ones included, and the most since the beginning.
  [[nodiscard]] std::int64_t live() const { return live_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  /// The most that the serial order of what was not started takes, resident bytes included; 0 at the end.
  [[nodiscard]] std::int64_t outlook() const { return std::max<std::int64_t>(0, serial_.max()); }

  /// Where live() and outlook() would be if the task were started now.
  struct Prospect {
    std::int64_t live;
    std::int64_t outlook;
  };
  [[nodiscard]] Prospect prospect(TaskId task);
  /// Whether neither of them would be above the capacity.
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
  // Per storage: its users by falling position, of which the first `passed_` were started; how many have not ended.
  std::vector<std::vector<std::int32_t>> by_position_;
  std::vector<std::size_t> passed_;
  std::vector<std::int32_t> unended_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  RangeMax serial_;  ///< bytes live while each task of the serial order runs
};

}  // namespace weft
