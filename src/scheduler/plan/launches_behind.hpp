#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/launch_growth.hpp"
#include "scheduler/plan/released_memory.hpp"

namespace weft {

/// So many launches behind a cut, and how long computing waits at least near the end of the step then.
struct LaunchesLeft {
  double launches = 0;
  double idle_s = 0;
};

/// How many launches start behind a cut at the least, where memory keeps them small.
///
/// With h seconds of gathers held at the cut's end and a link that is idle for i seconds after it, what was sent after
/// k launches is bounded launch by launch: before the next starts no more has been computed than c = i + what k
/// launches took, k latencies and their bytes, at 1 / (1 + s) of the speed. Gathers have their memory from their start
/// on, so that all of them, h included, take no more than the room at the cut's end and what was freed; others are sent
/// no further than they are ready (ReleasedMemory has both). Of two ways to have sent as much of either the one that
/// has sent more of the other can do all that the first can; so only the largest launches of each kind are looked at,
/// and of the states they lead to those that no other exceeds. A launch that lasts when the cut ends is not counted: it
/// is the first, with nothing computed before it.
///
/// Counted from the end of the step the last l launches send no more than LaunchGrowth says if computing waits for v
/// seconds then. K launches are enough only if for every l both together can send all that is left.
class LaunchesBehind {
 public:
  /// `room_s`: seconds of gathering that would take all memory there is at the cut's end beside what is live for
  /// certain. All are to outlive this.
  LaunchesBehind(ReleasedMemory const& released, LinkTerms const& link, LaunchGrowth const& last, double room_s);

  /// By falling launches and rising idle seconds. At least `held_s` of gathers are held at the cut's end, `sent_s` at
  /// the most; the link is idle for `idle_s` at the most.
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
  std::vector<double> idles_{};                   ///< of computing near the end
  std::vector<std::vector<double>> last_sent_{};  ///< by place in idles_ and launches
};

}  // namespace weft
