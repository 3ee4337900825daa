// collectives/hierarchical on simulated ranks: sizes alone take what data takes, and which way calls go is chosen by
// what both ways take.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "collectives/hierarchical/flat_limits.hpp"
#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "simulation/sim_bootstrap.hpp"
#include "simulation/simulated_ranks.hpp"

namespace weft::sim {
namespace {

using hierarchical::HierarchicalBackend;
using hierarchical::WayCost;

Topology hosts_of(int hosts, int ranks_per_host, LinkSpeed inside, LinkSpeed between) {
  auto topology = Topology::flat(hosts * ranks_per_host, between);
  topology.ranks_per_host = ranks_per_host;
  topology.inside = inside;
  return topology;
}

constexpr LinkSpeed kFast{1e-6, 10e9};
constexpr LinkSpeed kSlow{10e-6, 1e9};

/// Every operation that goes by hosts, of parts that are larger than what is carried in any case.
void call_everything(Communicator& world) {
  constexpr std::size_t kPart = 40'000;
  auto const n = static_cast<std::size_t>(world.size());
  auto whole = world.allocate(kPart * n, DataType::f32);
  auto other = world.allocate(kPart * n, DataType::f32);
  auto part = world.allocate(kPart, DataType::f32);
  world.all_reduce(whole.view(), other.view(), ReduceOp::sum);
  world.all_reduce(whole.view(), other.view(), ReduceOp::avg);
  world.reduce_scatter(whole.view(), part.view(), ReduceOp::sum);
  world.all_gather(part.view(), whole.view());
  world.broadcast(whole.view(), world.size() - 1);
  world.reduce(whole.view(), other.view(), ReduceOp::max, 1);
  world.gather(part.view(), whole.view(), 0);
  world.scatter(whole.view(), part.view(), 2);
  world.all_to_all(whole.view(), other.view());
}

TEST(SimulatedHosts, SizesAloneTakeWhatDataTakes) {
  for (auto const reproducibility : {Reproducibility::run_to_run, Reproducibility::bitwise}) {
    for (auto const& [hosts, per_host] : {std::pair(2, 2), std::pair(3, 4)}) {
      std::vector<Outcome> outcomes;
      for (bool const carries_data : {true, false}) {
        Options options;
        options.carries_data = carries_data;
        options.reduction_s_per_byte = 1e-10;
        RankOptions how{.hierarchical = true, .communicator = {.reproducibility = reproducibility}};
        outcomes.push_back(simulate_ranks(hosts_of(hosts, per_host, kFast, kSlow), options, how,
                                          [](SimulatedRank& self) { call_everything(self.world()); }));
        outcomes.back().rethrow();
      }
      EXPECT_EQ(outcomes[0].elapsed, outcomes[1].elapsed) << hosts << " hosts of " << per_host;
      EXPECT_EQ(outcomes[0].messages, outcomes[1].messages);
      EXPECT_EQ(outcomes[0].bytes, outcomes[1].bytes);
    }
  }
}

Call all_reduce_of(std::size_t bytes, std::byte* memory) {
  Call call;
  call.contract = {.count = bytes, .operation = Operation::all_reduce, .dtype = DataType::u8};
  call.send = call.recv = memory;
  return call;
}

TEST(SimulatedHosts, AllReduceMovesTheLeastBetweenHosts) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  constexpr int kHosts = 8;
  constexpr int kLocals = 8;
  Options options;
  options.carries_data = false;
  auto const outcome = simulate_by_hosts(
      hosts_of(kHosts, kLocals, kFast, kSlow), options, WireFormat::f32,
      [](Backend& hosts, Transport& rank) { hosts.all_reduce(all_reduce_of(kBytes, rank.phantom())); });
  outcome.rethrow();
  auto const between = 2.0 * (kHosts - 1) * kBytes;           // of all hosts
  auto const inside = 2.0 * kHosts * (kLocals - 1) * kBytes;  // reduce_scatter and all_gather
  EXPECT_NEAR(static_cast<double>(outcome.bytes), between + inside, 1e-3 * (between + inside));
  auto const least = between / kHosts / kLocals / kSlow.bytes_per_s;  // every rank's link at once
  EXPECT_GT(to_seconds(outcome.elapsed), least);
  EXPECT_LT(to_seconds(outcome.elapsed), 1.7 * least + inside / kHosts / kLocals / kFast.bytes_per_s);
}

// Nobody waits for every rank where only some have something for it.
TEST(SimulatedHosts, RootsTalkToThoseThatHaveSomething) {
  constexpr int kHosts = 32;
  constexpr int kLocals = 4;
  constexpr std::size_t kPart = 1 << 10;
  Options options;
  options.carries_data = false;
  auto const outcome = simulate_by_hosts(
      hosts_of(kHosts, kLocals, kFast, kSlow), options, WireFormat::f32, [](Backend& hosts, Transport& rank) {
        Call call;
        call.contract = {.count = kPart, .operation = Operation::gather, .dtype = DataType::u8};
        call.send = call.recv = rank.phantom();
        hosts.gather(call);
      });
  outcome.rethrow();
  EXPECT_LE(outcome.messages, kHosts * kLocals * kLocals);
  auto const least = (kHosts - 1) * kLocals * kPart / kSlow.bytes_per_s;  // over the root's link
  EXPECT_LT(to_seconds(outcome.elapsed), least + 4 * kSlow.latency_s);
}

TEST(SimulatedHosts, MoreHostsThanAreCombinedInOnePass) {
  simulate_ranks(hosts_of(67, 2, kFast, kSlow), {}, {.hierarchical = true}, [](SimulatedRank& self) {
    auto const rank = static_cast<float>(self.world().rank());
    for (std::size_t const count : {std::size_t{10}, std::size_t{30'000}}) {
      std::vector<float> values(count, rank);
      self.world().all_reduce(std::span<float const>(values), std::span(values), ReduceOp::avg);
      for (auto const value : values) ASSERT_FLOAT_EQ(value, 66.5F);
    }
  }).rethrow();
}

/// What one all_reduce takes, where calls up to the limits of `costs` are one exchange.
double seconds_by(Topology const& topology, hierarchical::LevelCosts const& costs, std::size_t bytes) {
  std::vector<double> taken(static_cast<std::size_t>(topology.ranks));
  simulate_by_hosts(topology, {}, WireFormat::f32, [&](Backend& backend, Transport& rank) {
    auto& hosts = dynamic_cast<HierarchicalBackend&>(backend);
    hosts.set_level_costs(costs);
    std::vector<std::byte> memory(bytes);
    auto const begin = now(rank);
    hosts.all_reduce(all_reduce_of(bytes, memory.data()));
    taken[static_cast<std::size_t>(rank.rank())] = to_seconds(now(rank) - begin);
  }).rethrow();
  return *std::max_element(taken.begin(), taken.end());
}

TEST(LevelChoice, TakesTheFasterWayAtAnySize) {
  for (auto const& [inside, between] :
       {std::pair(kFast, kSlow), std::pair(LinkSpeed{30e-6, 10e9}, LinkSpeed{10e-6, 5e9}),
        std::pair(LinkSpeed{1e-6, 10e9}, LinkSpeed{50e-6, 1e8})}) {
    auto const topology = hosts_of(2, 4, inside, between);
    hierarchical::LevelCosts costs;
    simulate_by_hosts(topology, {}, WireFormat::f32, [&](Backend& backend, Transport& rank) {
      auto& hosts = dynamic_cast<HierarchicalBackend&>(backend);
      SimBootstrap bootstrap(rank);
      auto const network = std::to_string(inside.latency_s) + std::to_string(between.latency_s);
      hosts.find_level_costs(bootstrap, network, true, std::chrono::milliseconds(1000));
      costs = hosts.level_costs();
    }).rethrow();
    for (auto const pattern : hierarchical::kPatterns) ASSERT_TRUE(costs.measured[pattern]);
    auto always = costs;
    auto never = costs;
    for (auto const pattern : hierarchical::kPatterns) {
      always.flat[pattern] = {0, 0};
      always.by_hosts[pattern] = {1, 0};
      never.flat[pattern] = {1, 0};
      never.by_hosts[pattern] = {0, 0};
    }
    for (std::size_t bytes = 8; bytes <= 128 << 10; bytes *= 4) {
      auto best = seconds_by(topology, never, bytes);
      if (bytes <= most_combined_at_once(8)) best = std::min(best, seconds_by(topology, always, bytes));
      EXPECT_LE(seconds_by(topology, costs, bytes), 1.25 * best)
          << bytes << " bytes, inside " << inside.latency_s << " s, between " << between.latency_s << " s";
    }
  }
}

TEST(LevelChoice, CrossesWhereBothTakeTheSame) {
  constexpr std::size_t kMost = 32 << 10;
  WayCost const flat{10e-6, 3e-9};
  WayCost const by_hosts{40e-6, 1e-9};
  EXPECT_EQ(hierarchical::crossover(flat, by_hosts, kMost), 15'000U);
  EXPECT_EQ(hierarchical::crossover({40e-6, 1e-9}, {40e-6, 1e-9}, kMost), 0U);  // never better
  EXPECT_EQ(hierarchical::crossover(flat, {9e-6, 5e-9}, kMost), 0U);
  EXPECT_EQ(hierarchical::crossover(flat, {1e-3, 1e-9}, kMost), kMost);
  EXPECT_EQ(hierarchical::crossover(flat, {40e-6, 4e-9}, kMost), kMost);
  auto const line = WayCost::through(1000, 12e-6, 3000, 18e-6);
  EXPECT_NEAR(line.alpha_s, 9e-6, 1e-12);
  EXPECT_NEAR(line.beta_s_per_byte, 3e-9, 1e-15);
  EXPECT_EQ(WayCost::through(1000, 12e-6, 3000, 11e-6).beta_s_per_byte, 0);  // noise
}

TEST(LevelChoice, IsAssumedWhereNothingIsMeasured) {
  for (auto const pattern : hierarchical::kPatterns) {
    EXPECT_EQ(hierarchical::limits_of({}, 8)[pattern], hierarchical::kAssumedLimit);
  }
}

}  // namespace
}  // namespace weft::sim
