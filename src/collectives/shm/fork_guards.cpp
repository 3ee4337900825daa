#include "collectives/shm/fork_guards.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>

namespace weft::shm {

void ForkGuards::open() noexcept {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  read_end_ = UniqueFd{ends[0]};
  write_end_ = UniqueFd{ends[1]};
}

void ForkGuards::keep() noexcept {
  write_end_ = UniqueFd{};
  guards_.push_back({++forks_, std::exchange(read_end_, UniqueFd{})});
}

void ForkGuards::leave() noexcept {
  read_end_ = UniqueFd{};  // the writing end stays open for as long as this process lives
  guards_.clear();
}

std::uint64_t ForkGuards::last_alive() {
  auto const ended = [](Guard const& guard) {
    pollfd wanted{guard.hangs_up.get(), 0, 0};
    return guard.hangs_up.get() >= 0 && ::poll(&wanted, 1, 0) == 1 && (wanted.revents & POLLHUP) != 0;
  };
  guards_.erase(std::remove_if(guards_.begin(), guards_.end(), ended), guards_.end());
  return guards_.empty() ? 0 : guards_.back().fork;
}

}  // namespace weft::shm
