#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// What launch_bound() has to know of a link.
struct LinkTerms {
  std::vector<double> bodies{};  ///< by task: seconds of its bytes on the link; 0 of all others
  std::vector<bool> sends{};     ///< by task: whether it takes time there
  std::size_t tasks = 0;         ///< that do
  double latency_s = 0;          ///< the least of any of them
  double contention = 0;

  /// What `link` has to do in `problem`.
  [[nodiscard]] static LinkTerms of(Problem const& problem, Resource link, double contention);
  /// Whether there is anything to count.
  [[nodiscard]] bool has_launches() const { return tasks > 0 && latency_s > 0; }
};

/// So many launches, or some more, and for how long nothing can be computed then (at full speed).
struct LaunchChoice {
  double launches = 0;
  double idle_s = 0;
};

/// How large launches can be that follow one another from the beginning of a step, or from its end back: no larger than
/// what is computed beside them allows (launch_bound() has the formula).
class LaunchGrowth {
 public:
  LaunchGrowth(Problem const& problem, LinkTerms const& link, std::vector<TaskId> const& path, bool from_end);

  /// Seconds of bytes that are sent before the task (after it) at the least.
  [[nodiscard]] double needed(TaskId task) const { return needed_[static_cast<std::size_t>(task)]; }
  /// All ways to send so much, by rising launches.
  [[nodiscard]] std::vector<LaunchChoice> choices(double seconds) const;
  /// Seconds that can be computed at the most, from nothing but what so many seconds of sending bring.
  [[nodiscard]] double computed_with(double sent) const;

 private:
  void sum_shared(std::vector<std::pair<double, double>> shared);
  void sum_single(Problem const& problem, std::vector<double> const& beside);
  [[nodiscard]] bool can_send(double seconds, std::size_t most_launches, double idle_s) const;
  [[nodiscard]] double least_idle(double seconds, std::size_t most_launches) const;

  LinkTerms const& link_;
  std::vector<double> needed_;
  double free_s_ = 0;  ///< computed without anything being sent
  // What needs several collectives: the seconds that those take, rising, and what is computed with so many.
  std::vector<double> shared_sent_;
  std::vector<double> shared_computed_{0};
  // What needs a single one: sums over those, most computing for the sending first.
  std::vector<double> single_sent_{0};
  std::vector<double> single_computed_{0};
};

}  // namespace weft
