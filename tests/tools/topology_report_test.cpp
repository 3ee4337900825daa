#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/ranks.hpp"
#include "weft_topology/host.hpp"
#include "weft_topology/links.hpp"
#include "weft_topology/report.hpp"

namespace weft::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Host host_named(std::string const& name, std::string const& identity) {
  Host host;
  host.name = name;
  host.identity = identity;
  return host;
}

TEST(TopologyReport, HostsOfOneNameAreTwo) {
  auto const report =
      report_of({host_named("a", "1"), host_named("a", "2"), host_named("b", "3"), host_named("a", "1")});
  EXPECT_THAT(report.host_of, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(report.hosts, ElementsAre(host_named("a", "1"), host_named("a#2", "2"), host_named("b", "3")));
}

TEST(TopologyReport, SaysWhatEachHostHasAndWhatIsSlow) {
  Host host;
  host.name = "a";
  host.processor = "some processor";
  host.nics = {{.name = "ib0", .state = "up", .speed_mbit = 400'000, .mtu = 4096, .numa = 1, .pci = "0000:3b:00.0"}};
  host.gpus = {{.name = "H200", .pci = "0000:3d:00.0", .numa = 1, .distances = {"switch"}}};
  auto other = host;
  other.name = other.identity = "b";
  auto report = report_of({host, host, other, other});
  report.links = {{0, 2, 2.5, 40e9}, {2, 0, 2.5, 39e9}};
  report.slow = {"from b to a is slow"};
  auto const text = text_of(report);
  for (char const* const part :
       {"b: ranks 2-3; some processor", "ib0: up, 400 Gb/s by its own account, MTU 4096, NUMA node 1",
        "GPU H200 (0000:3d:00.0), NUMA node 1; ib0 under the same switch", "a to b: 40 GB/s, 2.5 us",
        "SLOW: from b to a is slow"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  auto const json = nlohmann::json::parse(json_of(report).dump());
  EXPECT_EQ(host, json.at("hosts").at(0).get<Host>());
  EXPECT_EQ(39e9, json.at("links").at(1).at("bytes_per_s").get<double>());
}

TEST(TopologyHost, ThisHostHasCores) {
  auto const host = look_at_this_host();
  EXPECT_GE(host.cores, 1);
  EXPECT_GE(host.threads, host.cores);
  EXPECT_FALSE(host.name.empty());
}

TEST(TopologyLinks, EveryRankLearnsOfBothDirectionsOfEveryPair) {
  constexpr int kRanks = 3;
  std::vector<std::vector<Link>> links(kRanks);
  test::run_thread_ranks(kRanks, [&](Communicator& world) {
    auto const pairs = pairs_of({0, 0, 1}, 1000);
    links[static_cast<std::size_t>(world.rank())] = measure_links(world, pairs, {.bytes = 1 << 14, .repeats = 1});
  });
  EXPECT_EQ(links[0], links[1]);
  EXPECT_EQ(links[0], links[2]);
  std::vector<std::pair<int, int>> ends;
  for (auto const& link : links[0]) {
    ends.emplace_back(link.from, link.to);
    EXPECT_GT(link.latency_us, 0);
    EXPECT_GT(link.bytes_per_s, 0);
  }
  std::vector<std::pair<int, int>> const all{{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 2}, {2, 1}};
  EXPECT_EQ(all, ends);
}

}  // namespace
}  // namespace weft::topology
