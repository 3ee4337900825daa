#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "collectives/call.hpp"
#include "core/rank_hosts.hpp"

namespace weft::shm {

/// What is around the ranks of one host where they belong to a larger communicator.
struct Surroundings {
  /// Hears what ranks elsewhere tell, and tells them in time that this one waits for `peer`, by its number there, until
  /// `ready`, in a collective `call`. Called between the naps of a wait, by any thread. @throws what is known there: a
  /// failure, a lost rank, or, at the time limit, for whom `peer` waits itself.
  using Look = std::function<void(Call const& call, int peer, std::function<bool()> const& ready,
                                  std::chrono::nanoseconds waited)>;

  std::vector<int> ranks;  ///< what reports call the ranks; empty: what they are called here
  RankHosts hosts;         ///< of all ranks there, for reports
  Look look;               ///< empty: nobody there needs to know
};

}  // namespace weft::shm
