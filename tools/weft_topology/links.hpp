#pragma once

#include <weft/communicator.hpp>

#include <cstddef>
#include <vector>

namespace weft::topology {

/// The time of messages from one rank to another: latency + bytes / bandwidth.
struct Link {
  int from = 0;
  int to = 0;
  double latency_us = 0;  ///< half a round trip of 8 bytes; the same in both directions
  double bytes_per_s = 0;
  bool operator==(Link const&) const = default;
};

struct LinkOptions {
  std::size_t bytes = 1 << 20;  ///< size of the messages that measure bandwidth
  int repeats = 3;              ///< the best counts
};

/// Which pairs of ranks to measure, first < second: all of them, or only those between the hosts' first ranks if all
/// are more than `most`. `host_of`: the number of each rank's host.
[[nodiscard]] std::vector<std::pair<int, int>> pairs_of(std::vector<int> const& host_of, std::size_t most);

/// Collective: measures one pair after the other, while all other ranks wait, and gives every rank all links; the two
/// directions of a pair follow each other. @throws Error if a rank does not answer within the communicator's timeout.
[[nodiscard]] std::vector<Link> measure_links(Communicator& world, std::vector<std::pair<int, int>> const& pairs,
                                              LinkOptions const& options);

}  // namespace weft::topology
