#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/sent_along.hpp"

namespace weft {

/// Of the first (or last) `sent` seconds that a link sends, beside so many nothing can be computed.
struct Exposure {
  double seconds = 0;
  double sent = 0;
};

/// What is sent before all that it can be hidden behind, and after all of it. Nothing where both links send.
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

/// `path`: as for sent_along(). Source of the argument: nothing that needs T seconds of sending is computed beside the
/// first T, so that of these no more than what all else computes, slowed by 1 + contention, can be hidden.
[[nodiscard]] ExposedSending exposed_sending(Problem const& problem, BoundBodies const& bodies,
                                             std::vector<TaskId> const& path, double contention);

}  // namespace weft
