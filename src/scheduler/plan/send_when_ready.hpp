#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// Rules for when something is sent, and how much at once. A collective whose result is computed with has a deadline:
/// the time at which the computing before its first use is done. What only updates wait for has none.
struct SendRules {
  std::int64_t capacity = 0;
  double contention = 0;
  double ahead = 1;        ///< a launch takes no longer than this many times the time left until its first deadline ...
  double least_bytes = 0;  ///< ... unless it would be smaller than this
  double gather_bytes = 0;     ///< gathers of fewer bytes are not sent while there is time to wait
  double reduce_bytes = 0;     ///< less of what has no deadline is not sent while something is computed
  double share = 1;            ///< share of the memory left that one launch may take
  double taper = 1;            ///< reduce_bytes is no more than this many times what has not been sent yet
  std::int32_t window = 1000;  ///< RunRules::window
};

struct Sent {
  std::vector<std::vector<OpId>> launches{};  ///< launches of two and more operators
  std::vector<OpId> started{};                ///< all operators, by start
};

/// Runs the tasks of `problem` (nothing merged) in simulated time. Whenever a link is idle, the rules decide which of
/// the collectives that are ready are sent at once, as one launch. Deterministic.
/// Pre: the peak of `serial` is within the capacity.
[[nodiscard]] Sent send_when_ready(Problem const& problem, std::vector<TaskId> const& serial, SendRules const& rules);

}  // namespace weft
