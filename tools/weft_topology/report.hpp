#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft_topology/host.hpp"
#include "weft_topology/links.hpp"

namespace weft::topology {

/// All that was found out about a job's hosts.
struct Report {
  std::vector<Host> hosts;   ///< in order of their first ranks
  std::vector<int> host_of;  ///< for each rank its host's place in `hosts`
  std::vector<Link> links;
  std::vector<std::string> slow;  ///< sentences, worst first
};

/// A report without links of ranks that see these hosts, in rank order. Hosts are told apart by identity; a name that
/// another one has as well gets a number: "a", "a#2".
[[nodiscard]] Report report_of(std::vector<Host> const& seen);

/// For people: hosts, links inside and between them, what is slow.
[[nodiscard]] std::string text_of(Report const& report);

[[nodiscard]] nlohmann::json json_of(Report const& report);

}  // namespace weft::topology
