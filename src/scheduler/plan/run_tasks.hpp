#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// How tasks are run: each resource, whenever it is idle, takes the most urgent task that can start.
struct RunRules {
  /// All tasks, in an order in which they could run one after another within the capacity (see MemoryOutlook).
  std::vector<TaskId> serial{};
  /// By task: lower values go first; ties by id.
  std::vector<double> urgency{};
  std::int64_t capacity = 0;  ///< bytes that may be live at any time
  double contention = 0;      ///< computing takes 1 + contention times as long while a collective runs
  /// By task: another task that has to have started before it may, and that stands before it in the serial order; or
  /// kNone.
  std::vector<TaskId> gates{};
  /// Computing is never further ahead than this many places of the serial order: what is computed long before it is
  /// needed takes memory away from what is to be sent.
  std::int32_t window = std::numeric_limits<std::int32_t>::max();
  /// The run is given up as soon as it is certain not to end before this; Run::complete is false then.
  double give_up_s = std::numeric_limits<double>::infinity();
  /// By task: seconds to use in place of Task::seconds; empty: Task::seconds.
  std::vector<double> seconds{};
  bool in_order = false;  ///< tasks start in the serial order (on several resources at a time)
  bool blocking = false;  ///< one task at a time, in the serial order
};

struct TaskRun {
  double start_s = 0;
  double end_s = 0;
  std::int64_t live_bytes = 0;  ///< live right after its start, resident ones included
};

struct Run {
  std::vector<TaskRun> tasks{};
  std::vector<TaskId> started{};  ///< in the order of their starts
  double makespan_s = 0;
  bool complete = true;
  std::int64_t peak_bytes = 0;  ///< resident ones included
};

/// Runs the tasks in simulated time. Deterministic.
/// Pre: the serial order's peak is within the capacity.
[[nodiscard]] Run run_tasks(Problem const& problem, RunRules const& rules);

}  // namespace weft
