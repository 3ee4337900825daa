#include <gtest/gtest.h>

#include <chrono>

#include "transport/sim/simulation.hpp"
#include "weft/error.hpp"

namespace weft::sim {
namespace {

using std::chrono::microseconds;

constexpr LinkSpeed kInside{1e-6, 10e9};
constexpr LinkSpeed kBetween{10e-6, 1e9};
constexpr std::size_t kBytes = 100'000;  // 10 µs inside, 100 µs between

/// Two hosts of four ranks.
Topology two_hosts() {
  Topology topology;
  topology.ranks = 8;
  topology.ranks_per_host = 4;
  topology.inside = kInside;
  topology.between = kBetween;
  return topology;
}

/// When the last of `pairs` of messages of kBytes has arrived, all sent at once.
Time move(Topology const& topology, std::vector<std::pair<int, int>> const& pairs, Options options = {}) {
  options.carries_data = false;
  auto const outcome = simulate(topology, options, [&](Transport& rank) {
    std::vector<Transport::Request> requests;
    for (auto const& [from, to] : pairs) {
      if (to == rank.rank()) requests.push_back(rank.start_recv(from, {rank.phantom(), kBytes}));
      if (from == rank.rank()) requests.push_back(rank.start_send(to, {rank.phantom(), kBytes}));
    }
    for (auto& request : requests) rank.wait(request);
  });
  outcome.rethrow();
  return outcome.elapsed;
}

TEST(Network, RanksOfAHostTakeTheIsland) {
  EXPECT_EQ(move(two_hosts(), {{0, 1}}), microseconds(11));
  EXPECT_EQ(move(two_hosts(), {{0, 4}}), microseconds(110));
  // Both at once: the island and the NIC are different links.
  EXPECT_EQ(move(two_hosts(), {{0, 1}, {0, 4}}), microseconds(110));
}

TEST(Network, ALinkServesOneMessageAfterTheOther) {
  EXPECT_EQ(move(two_hosts(), {{0, 4}, {0, 5}}), microseconds(210));          // the way out
  EXPECT_EQ(move(two_hosts(), {{0, 4}, {1, 4}}), microseconds(210));          // the way in
  EXPECT_EQ(move(two_hosts(), {{0, 4}, {4, 0}, {1, 5}}), microseconds(110));  // both ways, and other NICs
}

TEST(Network, AMessageThatWaitsKeepsNoOthersFromItsNextLinks) {
  // 0 → 5 waits behind 0 → 4 for the way out of 0; meanwhile 1 → 5 goes first into 5.
  EXPECT_EQ(move(two_hosts(), {{0, 4}, {0, 5}, {1, 5}}), microseconds(210));
}

TEST(Network, RanksOfAHostShareItsNic) {
  auto topology = two_hosts();
  topology.shared_nic = true;
  EXPECT_EQ(move(topology, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}), microseconds(410));
  EXPECT_EQ(move(two_hosts(), {{0, 4}, {1, 5}, {2, 6}, {3, 7}}), microseconds(110));
}

TEST(Network, ChangingRailsGoesThroughTheSpine) {
  auto topology = two_hosts();
  topology.rails = true;
  topology.spine_latency_s = 5e-6;
  topology.oversubscription = 4;  // a rail's two NICs have half a NIC's way up
  EXPECT_EQ(move(topology, {{0, 4}}), microseconds(110));
  EXPECT_EQ(move(topology, {{0, 5}}), microseconds(215));
}

TEST(Network, AnOversubscribedTreeIsSlowBetweenItsLeaves) {
  auto topology = Topology::flat(8, kBetween);
  topology.hosts_per_leaf = 4;
  std::vector<std::pair<int, int>> const across{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(move(topology, {{0, 1}, {2, 3}}), microseconds(110));
  EXPECT_EQ(move(topology, across), microseconds(110));
  topology.oversubscription = 4;  // one NIC's worth for four
  EXPECT_EQ(move(topology, {{0, 4}}), microseconds(110));
  EXPECT_EQ(move(topology, across), microseconds(410));
}

TEST(Network, AGapDelaysTheNextMessage) {
  auto topology = Topology::flat(3, {10e-6, 1e9, 20e-6});
  EXPECT_EQ(move(topology, {{0, 1}}), microseconds(130));
  EXPECT_EQ(move(topology, {{0, 1}, {0, 2}}), microseconds(250));
}

TEST(Network, AStragglerIsSlowOnItsOwnLinksOnly) {
  Options options;
  options.stragglers = {{4, 3, {}}};
  EXPECT_EQ(move(two_hosts(), {{0, 4}}, options), microseconds(310));
  EXPECT_EQ(move(two_hosts(), {{0, 5}}, options), microseconds(110));
}

TEST(Network, LevelsSayWhatGroupsCanSend) {
  auto topology = two_hosts();
  auto levels = Network(topology).levels();
  ASSERT_EQ(levels.size(), 2U);
  EXPECT_DOUBLE_EQ(levels[0].bytes_per_s, 11e9);
  EXPECT_EQ(levels[1].groups, 2);
  EXPECT_DOUBLE_EQ(levels[1].bytes_per_s, 4e9);
  topology.shared_nic = true;
  EXPECT_DOUBLE_EQ(Network(topology).levels()[1].bytes_per_s, 1e9);
}

TEST(Network, ImpossibleTopologiesAreRefused) {
  auto const refused = [](auto change) {
    auto topology = two_hosts();
    change(topology);
    try {
      topology.check();
    } catch (Error const& error) {
      return error.code() == ErrorCode::invalid_argument;
    }
    return false;
  };
  EXPECT_TRUE(refused([](Topology& t) { t.ranks = 0; }));
  EXPECT_TRUE(refused([](Topology& t) { t.ranks_per_host = 3; }));
  EXPECT_TRUE(refused([](Topology& t) { t.between.bytes_per_s = 0; }));
  EXPECT_TRUE(refused([](Topology& t) { t.inside.latency_s = -1; }));
  EXPECT_TRUE(refused([](Topology& t) { t.oversubscription = 2; }));
  EXPECT_TRUE(refused([](Topology& t) { t.hosts_per_leaf = 3; }));
  EXPECT_TRUE(refused([](Topology& t) { t.rails = t.shared_nic = true; }));
  EXPECT_FALSE(refused([](Topology&) {}));
  Options options;
  options.stragglers = {{8, 2, {}}};
  EXPECT_THROW(static_cast<void>(simulate(two_hosts(), options, [](Transport&) {})), Error);
  options = {};
  options.losses = {{-1, {}}};
  EXPECT_THROW(static_cast<void>(simulate(two_hosts(), options, [](Transport&) {})), Error);
}

}  // namespace
}  // namespace weft::sim
