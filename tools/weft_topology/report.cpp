#include "weft_topology/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft_topology/slow.hpp"

namespace weft::topology {
namespace {

constexpr std::size_t kMostRows = 16;  // hosts whose links are shown one by one

std::string near(int numa) {
  return numa < 0 ? "" : fmt::format(", NUMA node {}", numa);
}

std::string text_of(Nic const& nic) {
  auto const speed =
      nic.speed_mbit > 0 ? fmt::format("{:g} Gb/s by its own account", nic.speed_mbit / 1e3) : "speed unknown";
  return fmt::format("    {}: {}, {}, MTU {}{}\n", nic.name, nic.state, speed, nic.mtu, near(nic.numa));
}

std::string text_of(Gpu const& gpu, std::vector<Nic> const& nics) {
  std::string text = fmt::format("    GPU {} ({}){}", gpu.name, gpu.pci, near(gpu.numa));
  for (std::size_t i = 0; i < std::min(nics.size(), gpu.distances.size()); ++i) {
    if (!gpu.distances[i].empty()) text += fmt::format("; {} under the same {}", nics[i].name, gpu.distances[i]);
  }
  return text + "\n";
}

std::string text_of(Host const& host, std::string const& ranks) {
  auto text = fmt::format("{}: rank{} {}; {}, {} of its cores ({} threads) for a rank, {} NUMA node{}\n", host.name,
                          ranks.find_first_of(",-") == std::string::npos ? "" : "s", ranks, host.processor, host.cores,
                          host.threads, host.numa_nodes, host.numa_nodes == 1 ? "" : "s");
  for (auto const& nic : host.nics) text += text_of(nic);
  if (host.nics.empty()) text += "    no network card\n";
  for (auto const& gpu : host.gpus) text += text_of(gpu, host.nics);
  return text;
}

/// "0-3,8".
std::string ranks_on(int host, std::vector<int> const& host_of) {
  std::string text;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    if (host_of[rank] != host) continue;
    auto last = rank;
    while (last + 1 < host_of.size() && host_of[last + 1] == host) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", rank);
    if (last > rank) text += fmt::format("-{}", last);
    rank = last;
  }
  return text;
}

/// Between two hosts (or inside one): how many links, and their extremes.
struct Summary {
  int links = 0;
  double least = 1e30;
  double most = 0;
  double quickest_us = 1e30;
  double slowest_us = 0;

  void add(Link const& link) {
    ++links;
    least = std::min(least, link.bytes_per_s);
    most = std::max(most, link.bytes_per_s);
    quickest_us = std::min(quickest_us, link.latency_us);
    slowest_us = std::max(slowest_us, link.latency_us);
  }
  [[nodiscard]] std::string text() const {
    auto const range = [](std::string const& low, std::string const& high) {
      return low == high ? low : low + " to " + high;
    };
    return range(text_of_bandwidth(least), text_of_bandwidth(most)) + ", " +
           range(fmt::format("{:.1f}", quickest_us), fmt::format("{:.1f}", slowest_us)) + " us";
  }
};

/// Of the links that `counts` takes.
template <typename Counts>
Summary summary_of(Report const& report, Counts counts) {
  Summary summary;
  for (auto const& link : report.links) {
    auto const from = report.host_of[static_cast<std::size_t>(link.from)];
    auto const to = report.host_of[static_cast<std::size_t>(link.to)];
    if (counts(from, to)) summary.add(link);
  }
  return summary;
}

std::string line_of(std::string const& what, Summary const& summary) {
  return summary.links == 0 ? "" : fmt::format("    {}: {}\n", what, summary.text());
}

std::string links_text(Report const& report) {
  auto const hosts = static_cast<int>(report.hosts.size());
  auto text = line_of("inside hosts", summary_of(report, [](int from, int to) { return from == to; })) +
              line_of("between hosts", summary_of(report, [](int from, int to) { return from != to; }));
  if (report.hosts.size() > kMostRows || hosts < 2) return text;
  for (int one = 0; one < hosts; ++one) {
    for (int other = 0; other < hosts; ++other) {
      if (one == other) continue;
      auto const& names = report.hosts;
      auto const what = fmt::format("{} to {}", names[static_cast<std::size_t>(one)].name,
                                    names[static_cast<std::size_t>(other)].name);
      text += line_of(what, summary_of(report, [&](int from, int to) { return from == one && to == other; }));
    }
  }
  return text;
}

}  // namespace

Report report_of(std::vector<Host> const& seen) {
  Report report;
  std::map<std::string, int> named;
  for (auto host : seen) {
    auto const known = std::find_if(report.hosts.begin(), report.hosts.end(),
                                    [&](auto const& other) { return other.identity == host.identity; });
    report.host_of.push_back(static_cast<int>(known - report.hosts.begin()));
    if (known != report.hosts.end()) continue;
    if (auto const count = ++named[host.name]; count > 1) host.name += fmt::format("#{}", count);
    report.hosts.push_back(std::move(host));
  }
  return report;
}

std::string text_of(Report const& report) {
  std::string text;
  for (std::size_t host = 0; host < report.hosts.size(); ++host) {
    text += text_of(report.hosts[host], ranks_on(static_cast<int>(host), report.host_of));
  }
  if (!report.links.empty())
    text += "bandwidth of long messages and latency of short ones, one pair of ranks at a time:\n" + links_text(report);
  for (auto const& sentence : report.slow) text += "SLOW: " + sentence + "\n";
  if (report.slow.empty() && !report.links.empty()) text += "no link is much slower than the others\n";
  return text;
}

nlohmann::json json_of(Report const& report) {
  auto links = nlohmann::json::array();
  for (auto const& link : report.links) {
    links.push_back(
        {{"from", link.from}, {"to", link.to}, {"latency_us", link.latency_us}, {"bytes_per_s", link.bytes_per_s}});
  }
  return {{"hosts", report.hosts}, {"host_of", report.host_of}, {"links", links}, {"slow", report.slow}};
}

}  // namespace weft::topology
