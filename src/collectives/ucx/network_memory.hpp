#pragma once

#include <string>
#include <vector>

#include "collectives/p2p/measure_network.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft::ucx {

/// What messages cost between ranks; `hosts` has the number of each rank's host. The first communicator of so many
/// ranks on so many hosts measures it, and the process remembers it for later ones. If rank 0 has no
/// Config::tuning_cache, nothing is measured and the costs are assumed. Collective over `bootstrap` and, where it
/// measures, over `transport`. The result is equal on all ranks.
[[nodiscard]] p2p::NetworkCosts find_costs(Bootstrap& bootstrap, Transport& transport,
                                           CommunicatorOptions const& options, std::string const& devices,
                                           std::vector<int> const& hosts);

}  // namespace weft::ucx
