#pragma once

#include <cstdint>
#include <vector>

#include "collectives/shm/unique_fd.hpp"

namespace weft::shm {

/// Knows which forks of this process still have a living child; for SharedHeap. Each fork gets a pipe whose writing end
/// only the child and its own children keep. When the last of them ends, or runs another program, the pipe hangs up.
/// One thread at a time.
class ForkGuards {
 public:
  /// Before a fork. Afterwards the parent calls keep(), the child leave().
  void open() noexcept;
  void keep() noexcept;
  void leave() noexcept;

  /// Number of forks so far. A child may know what was allocated when it was lower.
  [[nodiscard]] std::uint64_t forks() const noexcept { return forks_; }
  /// Forgets children that have ended; returns the number of the last fork that still has one, or 0.
  [[nodiscard]] std::uint64_t last_alive();

 private:
  struct Guard {
    std::uint64_t fork = 0;  ///< from 1
    UniqueFd hangs_up;       ///< -1: no pipe could be made, so the child counts as alive
  };

  std::uint64_t forks_ = 0;
  UniqueFd read_end_;
  UniqueFd write_end_;
  std::vector<Guard> guards_;
};

}  // namespace weft::shm
