#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// How tasks are run: each resource takes, whenever it is idle, the first in `urgency` of those that can start.
struct RunRules {
  /// All tasks in an order in which they could run one after another within the capacity (MemoryOutlook).
  std::vector<TaskId> serial{};
  /// Lower first, per task; ties by id.
  std::vector<double> urgency{};
  std::int64_t capacity = 0;  ///< bytes that may be live at any time
  double contention = 0;      ///< computing takes 1 + contention times as long while a collective runs
  /// Per task another one, which stands before it in the serial order and has to have started before it may; or kNone.
  std::vector<TaskId> gates{};
  /// Computing is no further ahead than this many places of the serial order: what is computed long before it is needed
  /// takes memory from what is to be sent.
  std::int32_t window = std::numeric_limits<std::int32_t>::max();
  /// Given up as soon as it is certain not to end before this; Run::complete is false then.
  double give_up_s = std::numeric_limits<double>::infinity();
  /// Per task, in place of Task::seconds; empty: those.
  std::vector<double> seconds{};
  bool in_order = false;  ///< tasks start in the serial order (on several resources at a time)
  bool blocking = false;  ///< one task at a time, in the serial order
};

struct TaskRun {
  double start_s = 0;
  double end_s = 0;
  std::int64_t live_bytes = 0;  ///< when it has started, resident ones included
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
