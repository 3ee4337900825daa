#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft_topology/host.hpp"
#include "weft_topology/links.hpp"

namespace weft::topology {

/// Everything found out about a job's hosts.
struct Report {
  std::vector<Host> hosts;   ///< in order of their first ranks
  std::vector<int> host_of;  ///< for each rank, the index of its host in `hosts`
  std::vector<Link> links;
  std::vector<std::string> slow;  ///< sentences, worst first
};

/// A report without links, from the hosts that the ranks see, in rank order. Hosts are distinguished by identity; if
/// two have the same name, the second gets a number: "a", "a#2".
[[nodiscard]] Report report_of(std::vector<Host> const& seen);

/// The report for people: hosts, links inside and between them, and what is slow.
[[nodiscard]] std::string text_of(Report const& report);

[[nodiscard]] nlohmann::json json_of(Report const& report);

}  // namespace weft::topology
