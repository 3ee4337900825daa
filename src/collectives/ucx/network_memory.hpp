#pragma once

#include <string>
#include <vector>

#include "collectives/p2p/measure_network.hpp"
#include "weft/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft::ucx {

/// What messages cost between ranks of `hosts` (the number of each one's), measured by the first communicator of so
/// many ranks on so many hosts and remembered by the process for those after it. Assumed where rank 0 has no
/// Config::tuning_cache: then nothing is to be measured. Collective over `bootstrap` and, where it measures, over
/// `transport`; equal on all ranks.
[[nodiscard]] p2p::NetworkCosts find_costs(Bootstrap& bootstrap, Transport& transport,
                                           CommunicatorOptions const& options, std::string const& devices,
                                           std::vector<int> const& hosts);

}  // namespace weft::ucx
