#include "scheduler/tune/training_place.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "collectives/texts.hpp"
#include "core/host_identity.hpp"
#include "core/topology.hpp"

namespace weft {
namespace {

// The different texts, joined: "a" of a, a, a; "a | b" of a, b, a.
std::string distinct(std::vector<std::string> const& texts) {
  std::vector<std::string> seen;
  for (std::string const& text : texts) {
    if (std::find(seen.begin(), seen.end(), text) == seen.end()) seen.push_back(text);
  }
  return fmt::format("{}", fmt::join(seen, " | "));
}

// How many ranks each host has, in order of their first ranks; names of hosts do not matter.
std::vector<std::size_t> ranks_of_hosts(std::vector<std::string> const& hosts) {
  std::vector<std::string> seen;
  std::vector<std::size_t> counts;
  for (std::string const& host : hosts) {
    auto const found = std::find(seen.begin(), seen.end(), host);
    if (found == seen.end()) {
      seen.push_back(host);
      counts.push_back(1);
    } else {
      ++counts[static_cast<std::size_t>(found - seen.begin())];
    }
  }
  return counts;
}

}  // namespace

std::string describe_place(Communicator& exchange, CommunicatorOptions const& trained_over) {
  Config const& config = *trained_over.config;
  auto const hosts = ranks_of_hosts(gather_texts(exchange, host_identity(config)));
  std::string const machines = distinct(
      gather_texts(exchange, fmt::format("cpus {} of {}", format_ranges(discover_topology().cpus), processor_name())));
  return fmt::format("{} ranks, of each host {}, on {}; backend {}; link {}", exchange.size(), fmt::join(hosts, " "),
                     machines, config.backend ? to_string(*config.backend) : std::string_view("by place"),
                     trained_over.emulated_link ? trained_over.emulated_link->describe() : "none emulated");
}

}  // namespace weft
