#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// Which ranks share a host, as one of them sees it.
class HostLayout {
 public:
  /// `host_of`: the number of each rank's host, from 0.
  HostLayout(int rank, std::vector<int> host_of);
  /// Numbers hosts by each rank's host's name, in order of the hosts' first ranks.
  [[nodiscard]] static std::vector<int> number(std::vector<std::string> const& names);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] std::vector<std::vector<int>> const& hosts() const noexcept { return hosts_; }
  [[nodiscard]] int host_of(int rank) const noexcept { return host_of_[static_cast<std::size_t>(rank)]; }
  /// Ranks on this rank's host, in rank order, this one included.
  [[nodiscard]] std::vector<int> const& locals() const noexcept { return hosts_[host(rank_)]; }
  /// Whether all hosts have as many ranks.
  [[nodiscard]] bool is_even() const noexcept;
  [[nodiscard]] bool is_local(int rank) const noexcept { return host(rank) == host(rank_); }
  /// `rank`'s place among the ranks of its host.
  [[nodiscard]] int local_index(int rank) const noexcept { return local_index_[static_cast<std::size_t>(rank)]; }
  /// Which rank of another host `to` brings in what is meant for all of it from `rank`; all of its ranks take turns.
  [[nodiscard]] int courier(int rank, std::vector<int> const& to) const noexcept {
    return to[static_cast<std::size_t>(local_index(rank)) % to.size()];
  }
  /// Rounds in which the ranks of a host divide the parts of all ranks among them, one each: of every host as many at
  /// a time as this one has. Whose parts each round has; what courier() gives is who takes them.
  [[nodiscard]] std::vector<std::span<int const>> rounds() const;
  /// Which of rounds() `rank`'s part is in.
  [[nodiscard]] std::size_t round_of(int rank) const noexcept {
    return first_round_[host(rank)] + static_cast<std::size_t>(local_index(rank)) / locals().size();
  }
  /// The most rounds that any host needs.
  [[nodiscard]] std::size_t most_rounds() const noexcept;

 private:
  [[nodiscard]] std::size_t host(int rank) const noexcept {
    return static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)]);
  }

  int rank_;
  std::vector<int> host_of_;
  std::vector<int> local_index_;
  std::vector<std::vector<int>> hosts_;
  std::vector<std::size_t> first_round_;  // of rounds() that has ranks of a host
};

}  // namespace weft
