#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/sent_along.hpp"

namespace weft {

/// While a link sends its first (or last) `sent` seconds, nothing can be computed for `seconds` of them.
struct Exposure {
  double seconds = 0;
  double sent = 0;
};

/// Sending that cannot be hidden: what is sent before everything it could be hidden behind, and what is sent after all
/// of it. Zero where both links send.
class ExposedSending {
 public:
  Exposure head{};
  Exposure tail{};
  std::vector<double> before{};  ///< of each task: seconds sent at the least before it starts
  std::vector<double> after{};   ///< ... after it has ended
  /// The first head.sent seconds are sent before the task starts; the last tail.sent after it has ended.
  [[nodiscard]] bool behind_head(TaskId task) const { return reaches(before[static_cast<std::size_t>(task)], head); }
  [[nodiscard]] bool before_tail(TaskId task) const { return reaches(after[static_cast<std::size_t>(task)], tail); }

 private:
  /// Sums of the same seconds may differ in the last bits.
  static bool reaches(double sent, Exposure const& exposure) { return sent >= exposure.sent * (1 - 1e-9); }
};

/// `path`: as for sent_along(). The argument: nothing that needs T seconds of sending is computed beside the first T
/// seconds, so no more of these can be hidden than all other tasks compute, slowed by 1 + contention.
[[nodiscard]] ExposedSending exposed_sending(Problem const& problem, BoundBodies const& bodies,
                                             std::vector<TaskId> const& path, double contention);

}  // namespace weft
