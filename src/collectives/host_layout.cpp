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
