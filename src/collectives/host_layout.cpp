#include "collectives/host_layout.hpp"

#include <algorithm>
#include <utility>

namespace weft {

HostLayout::HostLayout(int rank, std::vector<int> host_of) : rank_(rank), host_of_(std::move(host_of)) {
  hosts_.resize(static_cast<std::size_t>(*std::max_element(host_of_.begin(), host_of_.end())) + 1);
  for (int one = 0; one < size(); ++one) {
    local_index_.push_back(static_cast<int>(hosts_[host(one)].size()));
    hosts_[host(one)].push_back(one);
  }
  std::size_t rounds = 0;
  for (auto const& ranks : hosts_) {
    first_round_.push_back(rounds);
    rounds += (ranks.size() + locals().size() - 1) / locals().size();
  }
}

std::vector<int> HostLayout::number(std::vector<std::string> const& names) {
  std::vector<std::string> known;
  std::vector<int> hosts;
  for (auto const& name : names) {
    auto const found = std::find(known.begin(), known.end(), name);
    hosts.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(name);
  }
  return hosts;
}

std::vector<int> HostLayout::limit(std::vector<int> const& hosts, int most) {
  HostLayout const layout(0, hosts);
  std::vector<std::string> names;
  for (int rank = 0; rank < layout.size(); ++rank) {
    auto const ranks = static_cast<int>(layout.hosts()[layout.host(rank)].size());
    auto const groups = (ranks + most - 1) / most;
    names.push_back(std::to_string(layout.host_of(rank)) + "/" +
                    std::to_string(layout.local_index(rank) * groups / ranks));
  }
  return number(names);
}

RankHosts HostLayout::find(std::vector<std::string> const& identities, std::vector<std::string> names, int most) {
  auto const machines = number(identities);
  auto const one_machine = std::all_of(machines.begin(), machines.end(), [](int machine) { return machine == 0; });
  return {limit(machines, most), std::move(names), one_machine};
}

bool HostLayout::is_even() const noexcept {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [&](std::vector<int> const& host) { return host.size() == hosts_.front().size(); });
}

std::vector<std::span<int const>> HostLayout::rounds() const {
  std::vector<std::span<int const>> rounds;
  for (std::span<int const> host : hosts_) {
    for (; !host.empty(); host = host.subspan(rounds.back().size())) {
      rounds.push_back(host.first(std::min(locals().size(), host.size())));
    }
  }
  return rounds;
}

std::size_t HostLayout::most_rounds() const noexcept {
  auto smallest = hosts_.front().size();
  for (auto const& ranks : hosts_) smallest = std::min(smallest, ranks.size());
  std::size_t rounds = 0;
  for (auto const& ranks : hosts_) rounds += (ranks.size() + smallest - 1) / smallest;
  return rounds;
}

}  // namespace weft
