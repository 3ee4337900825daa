#pragma once

#include <chrono>

#include "core/yielder.hpp"

namespace weft::shm {

/// How a wait passes its time before it sleeps on a futex.
struct Patience {
  int spins = 0;    ///< polls with a pause instruction between them
  int glances = 0;  ///< where ranks share cores: polls between two yields, for a rank that runs on another core
  int yields = 0;   ///< polls with sched_yield() between them, fewer where other programs want the core
  std::chrono::milliseconds late = Yielder::kLate;  ///< a yield that takes this long shows that others want it
};

/// A wait yields no longer than this, because meanwhile it does not check whether the peer died.
inline constexpr std::chrono::milliseconds kLongestYielding{200};

/// Spins for a few microseconds at most: as long as a peer takes to answer that is at the same place.
inline constexpr int kFewSpins = 550;

}  // namespace weft::shm
