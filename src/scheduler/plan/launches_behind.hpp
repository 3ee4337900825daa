#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/launch_growth.hpp"
#include "scheduler/plan/released_memory.hpp"

namespace weft {

/// A number of launches behind a cut, and how long computing then waits at least near the end of the step.
struct LaunchesLeft {
  double launches = 0;
  double idle_s = 0;
};

/// How many launches start behind a cut at the least, where memory keeps them small.
///
/// From the cut on: let h seconds of gathers be held at the cut's end and the link be idle for i seconds after it.
/// Launch by launch this bounds what was sent after k launches. Before the next one starts, no more has been computed
/// than c = i + what k launches took, k latencies and their bytes, at 1 / (1 + s) of the speed. Gathers hold their
/// memory from their start on, so all of them, h included, take no more than the room at the cut's end and what was
/// freed; others are sent no further than they are ready (ReleasedMemory bounds both). Of two ways to have sent as much
/// of either kind, the one that has sent more of the other can do all that the first can. So only the largest launches
/// of each kind are looked at, and of the states they lead to only those that no other exceeds. A launch that is under
/// way when the cut ends is not counted: it is the first, with nothing computed before it.
///
/// From the end of the step back: the last l launches send no more than LaunchGrowth says if computing waits for v
/// seconds then. K launches are enough only if, for every l, both together can send all that is left.
class LaunchesBehind {
 public:
  /// `room_s`: the seconds of gathering that would fill all memory that is left at the cut's end beside what is live
  /// for certain. The arguments passed by reference have to outlive this.
  LaunchesBehind(ReleasedMemory const& released, LinkTerms const& link, LaunchGrowth const& last, double room_s);

  /// The possible pairs, by falling launches and rising idle seconds. At the cut's end at least `held_s` of gathers are
  /// held and at most `sent_s` have been sent; the link is idle for at most `idle_s`.
  [[nodiscard]] std::vector<LaunchesLeft> choices(double held_s, double sent_s, double idle_s) const;

 private:
  struct Sent {
    double gathers_s = 0;
    double others_s = 0;
  };
  [[nodiscard]] std::vector<double> most_sent(double held_s, double idle_s) const;
  template <typename Computed>
  [[nodiscard]] std::vector<Sent> after_one(std::vector<Sent> const& states, Computed const& computed_with) const;

  ReleasedMemory const& released_;
  LinkTerms const& link_;
  double room_s_;
  std::vector<double> idles_{};                   ///< idle seconds near the end that are looked at
  std::vector<std::vector<double>> last_sent_{};  ///< the most that is sent, by place in idles_ and number of launches
};

}  // namespace weft
