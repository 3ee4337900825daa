#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// When something is sent, and how much at once. What something is computed from is sent for a deadline: when the
/// computing before its first use has been done. What only updates wait for has none.
struct SendRules {
  std::int64_t capacity = 0;
  double contention = 0;
  double ahead = 1;         ///< a launch takes no longer than this many times what is left until its first deadline ...
  double least_bytes = 0;   ///< ... unless it would be smaller than this
  double gather_bytes = 0;  ///< less is not sent while there is time
  double reduce_bytes = 0;  ///< likewise, of what has no deadline, while something is computed
  double share = 1;         ///< of the memory that is left, that one launch may take
  double taper = 1;         ///< reduce_bytes is no more than this many times what has not been sent yet
  std::int32_t window = 1000;  ///< RunRules::window
};

struct Sent {
  std::vector<std::vector<OpId>> launches{};  ///< of two and more
  std::vector<OpId> started{};                ///< all operators, by start
};

/// Runs the tasks of `problem` (nothing merged) in simulated time. Whenever a link is idle, what is ready then is
/// decided upon: which of it is sent at once, as one. Deterministic.
/// Pre: the peak of `serial` is within the capacity.
[[nodiscard]] Sent send_when_ready(Problem const& problem, std::vector<TaskId> const& serial, SendRules const& rules);

}  // namespace weft
