#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/order/problem.hpp"
#include "scheduler/plan/cut_sides.hpp"
#include "scheduler/plan/launch_growth.hpp"

namespace weft {

/// The most memory that computing behind a cut can free, the most sending that it can make ready, and what the link has
/// to send there. LaunchesBehind uses these bounds.
///
/// Sends are either gathers, which bring() what is held until it is used, or `others` (reductions, say). Some time
/// after the cut let S be the tasks that have ended; all that they wait for has ended, too. They have freed
///   f(S) = (what was live at the cut, or gathered, and is used by tasks of S alone) - (what S made and is in use)
/// bytes. So with c seconds computed behind the cut and r seconds of others sent, f is no more than
///   l c + m r + max over S of f(S) - l (seconds that S computes) - m (seconds of others in S),
/// for whatever l and m. The maximum is a largest closure, which is a least cut of a network (J.-C. Picard, "Maximal
/// closure of a graph", Management Science 22, 1976). The others that are ready are bounded in the same way by n c +
/// max of (their seconds) - n (seconds computed). While c is small most memory cannot be freed yet, nor most others be
/// ready, as what has to be computed for them takes longer than c: the levels leave those out.
class ReleasedMemory {
 public:
  ReleasedMemory(Problem const& problem, LinkTerms const& link, std::vector<Side> const& side);

  /// The least bytes that a second of gathering brings.
  [[nodiscard]] double rate() const { return rate_; }
  [[nodiscard]] double gathers_s() const { return gathers_s_; }
  [[nodiscard]] double others_s() const { return others_s_; }
  /// Seconds of those others that do not need the cut.
  [[nodiscard]] double others_early_s() const { return others_early_s_; }
  /// Whether one launch can hold both gathers and others.
  [[nodiscard]] bool mixes() const { return mixes_; }
  /// Bytes live at the cut's end that are used later.
  [[nodiscard]] std::int64_t live_bytes() const { return live_bytes_; }

  /// Finds the bounds; until then nothing below may be asked for.
  void find();
  /// The most that can have been freed, in seconds of gathering, once so much is computed behind the cut and so many
  /// seconds of others are sent.
  [[nodiscard]] double freed_s(double computed_s, double others_sent_s) const;
  /// The most seconds of others that can have been made ready.
  [[nodiscard]] double ready_s(double computed_s) const;
  /// Seconds of computing from which on more can be freed or ready, rising.
  [[nodiscard]] std::vector<double> steps() const;

 private:
  struct Freed {
    double constant;
    double by_computed;
    double by_others;
  };
  struct Ready {
    double constant;
    double by_computed;
  };
  /// The bounds that hold while less than below_s has been computed behind the cut.
  struct Level {
    double below_s;
    std::vector<Freed> freed{};
    std::vector<Ready> ready{};
  };

  [[nodiscard]] bool is_behind(TaskId task) const { return side_[static_cast<std::size_t>(task)] != Side::before; }
  [[nodiscard]] bool is_other(TaskId task) const;
  [[nodiscard]] double computes(TaskId task) const;
  void sort_sends();
  void sort_storages();
  void find_needs();
  [[nodiscard]] double needed_for(std::vector<TaskId> const& tasks);
  [[nodiscard]] std::vector<double> level_ends() const;
  [[nodiscard]] Level level(double below_s) const;
  [[nodiscard]] double most_freed(double below_s, double by_computed, double by_others) const;
  [[nodiscard]] double most_ready(double below_s, double by_computed) const;
  [[nodiscard]] Level const& level_of(double computed_s) const;

  Problem const& problem_;
  LinkTerms const& link_;
  std::vector<Side> const& side_;
  std::vector<bool> gathers_;  ///< by task
  double rate_;
  double gathers_s_ = 0;
  double others_s_ = 0;
  double others_early_s_ = 0;
  bool mixes_ = false;
  std::int64_t live_bytes_ = 0;
  std::vector<bool> can_be_freed_;       ///< by storage
  std::vector<double> storage_needs_s_;  ///< by storage: the least seconds computed behind the cut before it is free
  std::vector<double> task_needs_s_;     ///< by task, of others: likewise before it is ready
  std::vector<int> seen_;
  int looks_ = 0;
  std::vector<Level> levels_;
};

}  // namespace weft
