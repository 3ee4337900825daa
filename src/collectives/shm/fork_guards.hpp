#pragma once

#include <cstdint>
#include <vector>

#include "collectives/shm/unique_fd.hpp"

namespace weft::shm {

/// Knows which forks still have a child. Each takes a pipe whose writing end only the child keeps, and its children:
/// when the last of them ends, or runs another program, it hangs up. One thread at a time.
class ForkGuards {
 public:
  /// Before a fork. Afterwards the parent calls keep(), the child leave().
  void open() noexcept;
  void keep() noexcept;
  void leave() noexcept;

  /// How many forks there were: what was allocated at an earlier count, a child may know.
  [[nodiscard]] std::uint64_t forks() const noexcept { return forks_; }
  /// Forgets children that have ended; the number of the last fork that still has one, or 0.
  [[nodiscard]] std::uint64_t last_alive();

 private:
  struct Guard {
    std::uint64_t fork = 0;  ///< from 1
    UniqueFd hangs_up;       ///< -1: no pipe was to be had, so the child counts as alive
  };

  std::uint64_t forks_ = 0;
  UniqueFd read_end_;
  UniqueFd write_end_;
  std::vector<Guard> guards_;
};

}  // namespace weft::shm
