#pragma once

#include <string>
#include <vector>

#include "weft_topology/links.hpp"

namespace weft::topology {

/// What counts as slow, relative to what is usual between hosts (or inside them).
struct SlowBounds {
  double bandwidth = 0.7;  ///< at most this times the usual one
  double latency = 2.5;    ///< at least this times the usual one
};

/// The slow links of `links`, one sentence each, worst first; empty if all are alike. `host_of` gives each rank's host,
/// `names` the hosts' names. Usual is the median, over hosts, of each host's best link out and in; links inside a host
/// are judged by those inside other hosts. A host whose links to others are all slow is named once; a pair of hosts is
/// named only if neither of them is. With only two hosts it is unknown which one is to blame, so the direction is
/// named.
[[nodiscard]] std::vector<std::string> find_slow(std::vector<Link> const& links, std::vector<int> const& host_of,
                                                 std::vector<std::string> const& names, SlowBounds const& bounds = {});

/// "125 MB/s", "12.3 GB/s".
[[nodiscard]] std::string text_of_bandwidth(double bytes_per_s);

}  // namespace weft::topology
