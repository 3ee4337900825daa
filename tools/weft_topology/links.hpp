#pragma once

#include <weft/communicator.hpp>

#include <cstddef>
#include <vector>

namespace weft::topology {

/// What messages from one rank to another take: latency + bytes / bandwidth.
struct Link {
  int from = 0;
  int to = 0;
  double latency_us = 0;  ///< half a round trip of 8 bytes; the same in both directions
  double bytes_per_s = 0;
  bool operator==(Link const&) const = default;
};

struct LinkOptions {
  std::size_t bytes = 1 << 20;  ///< of the messages that bandwidth is taken from
  int repeats = 3;              ///< the best counts
};

/// Which pairs of ranks are measured, first < second: all, or where those were more than `most`, those of the hosts'
/// first ranks. `host_of`: the number of each rank's host.
[[nodiscard]] std::vector<std::pair<int, int>> pairs_of(std::vector<int> const& host_of, std::size_t most);

/// Collective: measures the pairs one after the other, while all other ranks wait, and gives every rank all links, both
/// directions of a pair in a row. @throws Error where a rank does not answer within the communicator's timeout.
[[nodiscard]] std::vector<Link> measure_links(Communicator& world, std::vector<std::pair<int, int>> const& pairs,
                                              LinkOptions const& options);

}  // namespace weft::topology
