#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/sim/topology.hpp"

namespace weft::simulate_tool {

/// flat, nvlink, nvlink_shared_nic, rail, fat_tree
[[nodiscard]] std::vector<std::string_view> preset_names();

/// The preset of this name, or the topology of a JSON file (docs/simulator.md): an object with a "preset" to start
/// from, and members that change it. @throws Error{invalid_argument} naming the file and the member.
[[nodiscard]] sim::Topology read_topology(std::string const& name_or_path);

}  // namespace weft::simulate_tool
