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

/// Searches for the shortest plan. Choices are tried in rounds, those of a round at the same time on several threads;
/// which they are, and what is taken of them, does not depend on how many threads there are.
class PlanSearch {
 public:
  using Clock = std::chrono::steady_clock;
  PlanSearch(PlanMaker const& planner, ScheduleOptions const& options, Clock::time_point began)
      : planner_(planner), options_(options), began_(began) {}

  /// The plan of a policy that does not search; of SchedulePolicy::random the best of several.
  [[nodiscard]] Plan only(SchedulePolicy policy);
  /// The best of all: no longer than any policy's with the same options. Those are tried first, whatever the time
  /// limit; of graphs beyond 100,000 operators only while there is time and something to gain.
  [[nodiscard]] Plan best();

 private:
  /// What tells plans apart.
  using Key = std::tuple<std::vector<std::vector<OpId>>, StartRule, int, int, double, std::uint64_t>;

  [[nodiscard]] std::vector<PlanChoice> choices_of(SchedulePolicy policy) const;
  /// From where plans are improved, and what came of it.
  struct Start {
    Plan best{};
    std::vector<PlanChoice> leaders{};  ///< of the last plans that were the best when they were found, the best first
    std::size_t attempts = 0;           ///< plans looked at
  };

  /// What refine() is at.
  struct Refined {
    PlanChoice choice{};
    double score = 0;
    std::vector<Neighbours> launches{};
  };

  /// Tries those that give plans which were not tried before. Returns which of them ended, hardly later than the best
  /// before or earlier, and when.
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
  /// Seconds that a plan takes where operators take other times, in several ways.
  using Replayed = std::array<double, 4>;
  [[nodiscard]] std::vector<Plan> rivals() const;
  [[nodiscard]] std::vector<Replayed> replayed(std::vector<Plan> const& plans) const;
  [[nodiscard]] double near() const;        ///< so much longer than the best is hardly longer
  [[nodiscard]] double shortest_s() const;  ///< of the present start; infinite before there is one
  [[nodiscard]] std::size_t most_attempts() const;
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool has_ended() const;  ///< there is no time, or nothing to gain

  PlanMaker const& planner_;
  ScheduleOptions const& options_;
  Clock::time_point began_;
  std::set<Key> tried_;
  double sent_bytes_ = 0;  ///< by all collectives
  Start start_;
  std::optional<Refined> refined_{};
  bool sampled_ = false;    ///< until then the search goes on however near the bound it is: for steady plans to take
  std::vector<Plan> near_;  ///< others that were hardly longer when they were found, or the best before
};

}  // namespace weft
