#pragma once

#include <cstddef>
#include <vector>

#include "scheduler/order/problem.hpp"

namespace weft {

/// What launch_bound() needs to know of a link.
struct LinkTerms {
  std::vector<double> bodies{};  ///< by task: seconds of its bytes on the link; 0 of tasks that do not send there
  std::vector<bool> sends{};     ///< by task: whether it takes time there
  std::size_t tasks = 0;         ///< how many tasks send there
  double latency_s = 0;          ///< the least latency of any of them
  double contention = 0;

  /// What `link` has to do in `problem`.
  [[nodiscard]] static LinkTerms of(Problem const& problem, Resource link, double contention);
  /// Whether there is anything to count.
  [[nodiscard]] bool has_launches() const { return tasks > 0 && latency_s > 0; }
};

/// This many launches, or somewhat more, and for how long (at full speed) computing is then idle at the least.
struct LaunchChoice {
  double launches = 0;
  double idle_s = 0;
};

/// How large launches can be that follow one another from the beginning of a step, or backwards from its end: no larger
/// than what is computed beside them allows. The formula is in launch_bound.hpp.
class LaunchGrowth {
 public:
  LaunchGrowth(Problem const& problem, LinkTerms const& link, std::vector<TaskId> const& path, bool from_end);

  /// Seconds of bytes that are sent, at the least, before the task (from_end: after it).
  [[nodiscard]] double needed(TaskId task) const { return needed_[static_cast<std::size_t>(task)]; }
  /// All ways to send this many seconds of bytes, by rising launches.
  [[nodiscard]] std::vector<LaunchChoice> choices(double seconds) const;
  /// The most seconds that can be computed once `sent` seconds of bytes have been sent, and nothing else.
  [[nodiscard]] double computed_with(double sent) const;

 private:
  void sum_shared(std::vector<std::pair<double, double>> shared);
  void sum_single(Problem const& problem, std::vector<double> const& beside);
  [[nodiscard]] bool can_send(double seconds, std::size_t most_launches, double idle_s) const;
  [[nodiscard]] double least_idle(double seconds, std::size_t most_launches) const;

  LinkTerms const& link_;
  std::vector<double> needed_;
  double free_s_ = 0;  ///< seconds computed by tasks that need nothing sent
  // Tasks that need several collectives: the seconds that those take, rising, and what is computed with so many.
  std::vector<double> shared_sent_;
  std::vector<double> shared_computed_{0};
  // Tasks that need a single collective: sums over these collectives, most computing per second of sending first.
  std::vector<double> single_sent_{0};
  std::vector<double> single_computed_{0};
};

}  // namespace weft
