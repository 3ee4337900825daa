#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "collectives/call.hpp"
#include "core/rank_hosts.hpp"

namespace weft::shm {

/// What the ranks of one host need of the larger communicator that they belong to, where there is one.
struct Surroundings {
  /// Called between the naps of a wait, by any thread. Receives what ranks elsewhere tell, and tells them in time that
  /// this rank waits, in a collective `call`, for `peer` (its number there) until `ready`. @throws what is known there:
  /// a failure, a lost rank, or, at the time limit, for which rank `peer` waits itself.
  using Look = std::function<void(Call const& call, int peer, std::function<bool()> const& ready,
                                  std::chrono::nanoseconds waited)>;

  std::vector<int> ranks;  ///< the ranks' numbers in reports; empty: their numbers here
  RankHosts hosts;         ///< of all ranks there, for reports
  Look look;               ///< empty: nobody there needs to know
};

}  // namespace weft::shm
