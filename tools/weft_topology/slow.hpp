#pragma once

#include <string>
#include <vector>

#include "weft_topology/links.hpp"

namespace weft::topology {

/// The bounds of what counts as slow, over what is usual between hosts (or inside them).
struct SlowBounds {
  double bandwidth = 0.7;  ///< times the usual one, or less
  double latency = 2.5;    ///< times the usual one, or more
};

/// The slow ones of `links`, a sentence each, worst first; empty where all are alike. `host_of` and `names` say each
/// rank's host and its name. What is usual is the median over hosts of the best link that each has, out and in; links
/// inside hosts are judged by those inside other hosts. A host all of whose links to others are slow is named once,
/// and pairs of hosts only where neither is. With two hosts nobody knows which one is to blame: then the direction is.
[[nodiscard]] std::vector<std::string> find_slow(std::vector<Link> const& links, std::vector<int> const& host_of,
                                                 std::vector<std::string> const& names, SlowBounds const& bounds = {});

/// "125 MB/s", "12.3 GB/s".
[[nodiscard]] std::string text_of_bandwidth(double bytes_per_s);

}  // namespace weft::topology
