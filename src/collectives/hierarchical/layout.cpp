#include "collectives/hierarchical/layout.hpp"

#include <algorithm>
#include <utility>

namespace weft::hierarchical {

Layout::Layout(int rank, std::vector<int> host_of) : rank_(rank), host_of_(std::move(host_of)) {
  hosts_.resize(static_cast<std::size_t>(*std::max_element(host_of_.begin(), host_of_.end())) + 1);
  for (int one = 0; one < size(); ++one) {
    local_index_.push_back(static_cast<int>(hosts_[host(one)].size()));
    hosts_[host(one)].push_back(one);
  }
}

}  // namespace weft::hierarchical
