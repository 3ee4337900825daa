#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/rank_hosts.hpp"

namespace weft {

/// Which ranks share a host, and how a host's ranks divide the work between hosts among them; as one rank sees it.
class HostLayout {
 public:
  /// `host_of`: the number of each rank's host, from 0.
  HostLayout(int rank, std::vector<int> host_of);
  /// The number of each rank's host, given the host's name; hosts are numbered in the order of their first ranks.
  [[nodiscard]] static std::vector<int> number(std::vector<std::string> const& names);
  /// Hosts of more than `most` ranks count as several of about equal size, in which neighbours by rank stay together.
  /// Returns the numbers of the hosts after that.
  [[nodiscard]] static std::vector<int> limit(std::vector<int> const& hosts, int most);

  /// The ranks' hosts, given the identity and name of each rank's machine; at most `most` ranks can share memory.
  [[nodiscard]] static RankHosts find(std::vector<std::string> const& identities, std::vector<std::string> names,
                                      int most);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] std::vector<std::vector<int>> const& hosts() const noexcept { return hosts_; }
  [[nodiscard]] int host_of(int rank) const noexcept { return host_of_[static_cast<std::size_t>(rank)]; }
  /// Ranks on this rank's host, in rank order, this one included.
  [[nodiscard]] std::vector<int> const& locals() const noexcept { return hosts_[host(rank_)]; }
  /// Whether all hosts have equally many ranks.
  [[nodiscard]] bool is_even() const noexcept;
  [[nodiscard]] bool is_local(int rank) const noexcept { return host(rank) == host(rank_); }
  /// `rank`'s place among the ranks of its host.
  [[nodiscard]] int local_index(int rank) const noexcept { return local_index_[static_cast<std::size_t>(rank)]; }
  /// Which rank of the host `to` receives what `rank`, of another host, sends to all of that host. Its ranks take
  /// turns.
  [[nodiscard]] int courier(int rank, std::vector<int> const& to) const noexcept {
    return to[static_cast<std::size_t>(local_index(rank)) % to.size()];
  }
  /// The rounds in which this host's ranks handle the parts of all ranks, each of them one part a round. A round holds
  /// ranks whose parts it is about: of one host, at most as many as this host has. courier() says who takes which part.
  [[nodiscard]] std::vector<std::span<int const>> rounds() const;
  /// Which of rounds() `rank`'s part is in.
  [[nodiscard]] std::size_t round_of(int rank) const noexcept {
    return first_round_[host(rank)] + static_cast<std::size_t>(local_index(rank)) / locals().size();
  }
  /// The number of rounds() that the smallest host needs, which is the most.
  [[nodiscard]] std::size_t most_rounds() const noexcept;

 private:
  [[nodiscard]] std::size_t host(int rank) const noexcept {
    return static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)]);
  }

  int rank_;
  std::vector<int> host_of_;
  std::vector<int> local_index_;
  std::vector<std::vector<int>> hosts_;
  std::vector<std::size_t> first_round_;  // by host: the first of rounds() with its ranks
};

}  // namespace weft
