// What is measured between simulated ranks is what their network is described with.
#include "collectives/p2p/measure_network.hpp"

#include <gtest/gtest.h>

#include "transport/sim/simulation.hpp"

namespace weft::p2p {
namespace {

std::vector<NetworkCosts> measured(sim::Topology const& topology, int distance, sim::Options const& options = {}) {
  std::vector<NetworkCosts> found(static_cast<std::size_t>(topology.ranks));
  sim::simulate(topology, options, [&](Transport& rank) {
    found[static_cast<std::size_t>(rank.rank())] = measure_network(rank, distance);
  }).rethrow();
  return found;
}

TEST(MeasureNetwork, FindsLatencyAndBandwidth) {
  struct Case {
    int ranks;
    sim::LinkSpeed link;
  };
  // From an adapter for InfiniBand to a modem; the last is too slow for long messages.
  for (auto const& [ranks, link] :
       {Case{2, {1e-6, 50e9}}, Case{5, {20e-6, 125e6}}, Case{16, {100e-6, 12.5e6}}, Case{3, {20e-3, 100e3}}}) {
    auto const found = measured(sim::Topology::flat(ranks, link), 1);
    EXPECT_NEAR(found[0].alpha_s, link.latency_s, link.latency_s / 100 + 10 / link.bytes_per_s);
    EXPECT_NEAR(found[0].beta_s_per_byte * link.bytes_per_s, 1, 0.01);
    for (auto const& each : found) EXPECT_EQ(each, found[0]) << "all ranks go by the same";
  }
}

// Of hosts that have one way out for all their ranks each rank has a share.
TEST(MeasureNetwork, SeesWhatRanksShare) {
  auto topology = sim::Topology::flat(8, {5e-6, 1e9});
  topology.ranks_per_host = 4;
  topology.inside = {1e-6, 100e9};
  topology.shared_nic = true;
  EXPECT_NEAR(measured(topology, 4)[0].beta_s_per_byte, 4e-9, 0.1e-9);
}

TEST(MeasureNetwork, TheSlowestRankCounts) {
  sim::Options options;
  options.stragglers = {{.rank = 2, .factor = 3}};
  auto const found = measured(sim::Topology::flat(4, {5e-6, 1e9}), 1, options);
  EXPECT_GT(found[0].beta_s_per_byte, 2.5e-9);
  for (auto const& each : found) EXPECT_EQ(each, found[0]);
}

TEST(MeasureNetwork, PartnersAreOnOtherHosts) {
  EXPECT_EQ(farthest({0, 1}), 1);
  EXPECT_EQ(farthest({0, 0, 1, 1}), 2);
  EXPECT_EQ(farthest({0, 1, 0, 1}), 1);
  EXPECT_EQ(farthest({0, 0, 0, 1}), 1) << "two of four, whatever the distance";
  EXPECT_EQ(farthest({0, 0, 0, 0}), 1) << "there is no other host";
  EXPECT_EQ(farthest({0, 0, 0, 1, 1, 1, 2, 2, 2}), 3);
}

}  // namespace
}  // namespace weft::p2p
