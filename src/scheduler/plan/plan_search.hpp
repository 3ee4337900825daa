#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/plan/launch_moves.hpp"
#include "scheduler/plan/plan_maker.hpp"
#include "weft/schedule.hpp"

namespace weft {

/// Searches for the shortest plan; plan_schedule() uses it. Choices are tried in rounds, those of one round at the same
/// time on several threads. Which choices are tried, and what is taken from them, does not depend on the number of
/// threads.
class PlanSearch {
 public:
  using Clock = std::chrono::steady_clock;
  PlanSearch(PlanMaker const& planner, ScheduleOptions const& options, Clock::time_point began)
      : planner_(planner), options_(options), began_(began) {}

  /// The plan of a policy that does not search; of SchedulePolicy::random the best of several.
  [[nodiscard]] Plan only(SchedulePolicy policy);
  /// The best plan found: no longer than any policy's with the same options. The policies are tried first, whatever the
  /// time limit; in graphs of more than 100,000 operators only while there is time and something to gain.
  [[nodiscard]] Plan best();

 private:
  /// What tells plans apart.
  using Key = std::tuple<std::vector<std::vector<OpId>>, StartRule, int, int, double, std::uint64_t>;

  [[nodiscard]] std::vector<PlanChoice> choices_of(SchedulePolicy policy) const;
  /// One start of the search: the best plan so far, and how it was found.
  struct Start {
    Plan best{};
    /// Choices of the last plans that were each the best when found, the best first.
    std::vector<PlanChoice> leaders{};
    std::size_t attempts = 0;  ///< plans looked at
  };

  /// Where refine() stands.
  struct Refined {
    PlanChoice choice{};
    double score = 0;
    std::vector<Neighbours> launches{};
  };

  /// Tries the choices that lead to plans not tried before. Returns which of them ended earlier, or hardly later, than
  /// the best before, and how many seconds these plans take.
  std::vector<std::pair<std::size_t, double>> try_all(std::vector<PlanChoice> const& choices);
  void take(PlanChoice const& choice, Plan plan);
  void policies();
  void sample();
  void settings();
  void send_as_ready();
  void improve();
  void sequence();
  void refine();
  [[nodiscard]] static Refined refined(PlanChoice choice, Plan const& plan);
  void rush();
  void move(OpId front);
  [[nodiscard]] Plan steadiest(double rival_s);
  /// Seconds that a plan takes where operators take other times than planned, in several variants.
  using Replayed = std::array<double, 4>;
  [[nodiscard]] std::vector<Plan> rivals() const;
  [[nodiscard]] std::vector<Replayed> replayed(std::vector<Plan> const& plans) const;
  [[nodiscard]] double near() const;        ///< plans longer than the best by up to this share count as hardly longer
  [[nodiscard]] double shortest_s() const;  ///< the best of the present start; infinite before there is one
  [[nodiscard]] std::size_t most_attempts() const;
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool has_ended() const;  ///< no time is left, or nothing is left to gain

  PlanMaker const& planner_;
  ScheduleOptions const& options_;
  Clock::time_point began_;
  std::set<Key> tried_;
  double sent_bytes_ = 0;  ///< by all collectives
  Start start_;
  std::optional<Refined> refined_{};
  /// Whether sample() has run. Until then the search goes on however near the bound it is, to have steady plans to
  /// choose from.
  bool sampled_ = false;
  /// Other plans that were the best before, or hardly longer than the best, when they were found.
  std::vector<Plan> near_;
};

}  // namespace weft
