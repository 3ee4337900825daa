#include "simulation/simulated_ranks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "weft/error.hpp"
#include "weft/event.hpp"
#include "weft/group.hpp"

namespace weft::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr LinkSpeed kLink{10e-6, 1e9};  // 10 µs, a byte a nanosecond

Topology hosts_of(int hosts, int ranks_per_host) {
  auto topology = Topology::flat(hosts * ranks_per_host, kLink);
  topology.ranks_per_host = ranks_per_host;
  topology.inside = {1e-6, 10e9};
  return topology;
}

double sum_of_ranks(int ranks) {
  return ranks * (ranks + 1) / 2.0;
}

void reduce_and_share(SimulatedRank& self) {
  auto& world = self.world();
  auto const n = static_cast<std::size_t>(world.size());
  std::vector<double> values(1000, world.rank() + 1);
  world.all_reduce(std::span<double const>(values), std::span(values), ReduceOp::sum);
  EXPECT_EQ(values, std::vector<double>(1000, sum_of_ranks(world.size())));

  std::vector<std::int32_t> gathered(n);
  std::int32_t const mine = world.rank() * 3;
  world.all_gather(std::span(&mine, 1), std::span(gathered));
  for (std::size_t r = 0; r < n; ++r) EXPECT_EQ(gathered[r], static_cast<std::int32_t>(r) * 3);

  std::vector<float> parts(n * 5000, 1);
  std::vector<float> part(5000);
  world.reduce_scatter(std::span<float const>(parts), std::span(part), ReduceOp::avg);
  EXPECT_EQ(part, std::vector<float>(5000, 1));
}

TEST(SimulatedRanks, CollectivesGiveWhatTheyDoElsewhere) {
  for (int const ranks : {1, 2, 3, 8, 13}) {
    simulate_ranks(Topology::flat(ranks, kLink), {.spoil_buffers = true}, {}, reduce_and_share).rethrow();
  }
}

TEST(SimulatedRanks, AlsoByHosts) {
  for (auto const& [hosts, per_host] : {std::pair(2, 2), std::pair(3, 4), std::pair(1, 3)}) {
    simulate_ranks(hosts_of(hosts, per_host), {.spoil_buffers = true}, {.hierarchical = true}, reduce_and_share)
        .rethrow();
  }
}

TEST(SimulatedRanks, BitsDoNotDependOnPlacementWhereTheyMayNot) {
  std::vector<std::vector<float>> results;
  for (auto const& [hosts, per_host] : {std::pair(1, 4), std::pair(2, 2), std::pair(4, 1)}) {
    std::vector<float> result;
    simulate_ranks(hosts_of(hosts, per_host), {},
                   {.hierarchical = true, .communicator = {.reproducibility = Reproducibility::bitwise}},
                   [&](SimulatedRank& self) {
                     std::vector<float> values(3001);
                     for (std::size_t i = 0; i < values.size(); ++i) {
                       values[i] = 1.0F / static_cast<float>(i + 3 + 7 * static_cast<std::size_t>(self.world().rank()));
                     }
                     self.world().all_reduce(std::span<float const>(values), std::span(values), ReduceOp::sum);
                     result = values;
                   })
        .rethrow();
    results.push_back(result);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(SimulatedRanks, AStreamRunsBesideComputation) {
  simulate_ranks(Topology::flat(2, kLink), {}, {}, [](SimulatedRank& self) {
    std::vector<float> values(1'000'000, 1);  // 4 MB: 4 ms each way
    auto const stream = Stream::cpu();
    auto const work =
        self.world().all_reduce(std::span<float const>(values), std::span(values), ReduceOp::sum, {.stream = stream});
    EXPECT_FALSE(work.test());
    auto const computed = self.compute(milliseconds(20));
    EXPECT_TRUE(work.test());
    auto const timings = work.timings();
    EXPECT_EQ(timings.enqueued, computed.start);
    EXPECT_EQ(timings.started, computed.start);
    EXPECT_GT(timings.finished - timings.started, milliseconds(4));
    EXPECT_LT(timings.finished - timings.started, milliseconds(5));
    EXPECT_EQ(self.now() - computed.start, milliseconds(20));
    EXPECT_EQ(values[17], 2);
  }).rethrow();
}

TEST(SimulatedRanks, StreamsAndEventsOrderWhatTheyOrderElsewhere) {
  simulate_ranks(Topology::flat(2, kLink), {}, {}, [](SimulatedRank& self) {
    std::vector<int> order;
    auto first = Stream::cpu();
    auto second = Stream::cpu();
    first.enqueue([&] {
      self.compute(microseconds(50));
      order.push_back(1);
    });
    follow(second, first);
    second.enqueue([&] { order.push_back(2); });
    EXPECT_TRUE(order.empty());
    second.synchronize();
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
    auto const late = enqueue_work(first, [&] { self.compute(milliseconds(3)); });
    EXPECT_FALSE(late.wait_for(milliseconds(1)));
    auto const waited = self.now();
    late.wait();
    EXPECT_EQ(self.now() - waited, milliseconds(2));
  }).rethrow();
}

TEST(SimulatedRanks, SplitsAndDuplicatesDoNotMixTheirMessages) {
  simulate_ranks(Topology::flat(6, kLink), {.jitter = microseconds(30), .shuffle = true, .spoil_buffers = true}, {},
                 [](SimulatedRank& self) {
                   auto& world = self.world();
                   auto half = world.split(world.rank() % 2, -world.rank());
                   ASSERT_TRUE(half);
                   auto copy = world.duplicate(world.options());
                   auto const stream = Stream::cpu();
                   std::vector<double> mine(100, world.rank());
                   std::vector<double> all(100, world.rank());
                   auto const work =
                       copy.all_reduce(std::span<double const>(all), std::span(all), ReduceOp::sum, {.stream = stream});
                   half->all_reduce(std::span<double const>(mine), std::span(mine), ReduceOp::sum);
                   work.wait();
                   EXPECT_EQ(mine[3], world.rank() % 2 == 0 ? 6 : 9);
                   EXPECT_EQ(all[3], 15);
                   EXPECT_EQ(half->rank(), 2 - world.rank() / 2);
                 })
      .rethrow();
}

TEST(SimulatedRanks, GroupsAndMessages) {
  simulate_ranks(Topology::flat(5, kLink), {.shuffle = true}, {}, [](SimulatedRank& self) {
    auto& world = self.world();
    auto const to = (world.rank() + 1) % world.size();
    auto const from = (world.rank() + 4) % world.size();
    int const sent = world.rank();
    int got = -1;
    world.send_recv(std::span(&sent, 1), to, std::span(&got, 1), from);
    EXPECT_EQ(got, from);
    std::vector<std::vector<float>> many(20, std::vector<float>(30, 1));
    Group group(world);
    for (auto& one : many) world.all_reduce(std::span<float const>(one), std::span(one), ReduceOp::sum);
    group.end().wait();
    for (auto const& one : many) EXPECT_EQ(one, std::vector<float>(30, 5));
  }).rethrow();
}

TEST(SimulatedRanks, DifferentCallsAreFoundOutByAll) {
  simulate_ranks(Topology::flat(5, kLink), {}, {}, [](SimulatedRank& self) {
    std::vector<float> values(self.world().rank() == 2 ? 11 : 10, 1);
    try {
      self.world().all_reduce(std::span<float const>(values), std::span(values), ReduceOp::sum);
      ADD_FAILURE() << "no error";
    } catch (Error const& known) {
      EXPECT_EQ(known.code(), ErrorCode::mismatch) << known.what();
      EXPECT_NE(std::string(known.what()).find("rank 2"), std::string::npos) << known.what();
    }
    values.resize(10, 1);  // and goes on
    self.world().all_reduce(std::span<float const>(values), std::span(values), ReduceOp::sum);
    EXPECT_EQ(values, std::vector<float>(10, 5));
  }).rethrow();
}

TEST(SimulatedRanks, AFailureReachesWorksOnStreams) {
  Options options;
  options.losses = {{.rank = 1, .at = milliseconds(2)}};
  auto const outcome = simulate_ranks(Topology::flat(3, kLink), options, {}, [](SimulatedRank& self) {
    std::vector<float> values(10'000'000);
    auto const stream = Stream::cpu();
    self.world()
        .all_reduce(std::span<float const>(values), std::span(values), ReduceOp::sum, {.stream = stream})
        .wait();
  });
  for (int const rank : {0, 2}) {
    try {
      std::rethrow_exception(outcome.errors[static_cast<std::size_t>(rank)]);
    } catch (Error const& known) {
      EXPECT_EQ(known.code(), ErrorCode::peer_lost);
      EXPECT_NE(std::string(known.what()).find("rank 1 was lost"), std::string::npos) << known.what();
    }
  }
  EXPECT_FALSE(outcome.errors[1]);
}

TEST(SimulatedRanks, LargeBuffersMayBeSizesAlone) {
  Options options;
  options.carries_data = false;
  auto const outcome = simulate_ranks(Topology::flat(64, kLink), options, {}, [](SimulatedRank& self) {
    auto buffer = self.world().allocate(std::size_t{1} << 22, DataType::f32);
    self.world().all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
    int count = 1;  // what ranks agree on is real
    self.world().all_reduce(std::span<int const>(&count, 1), std::span(&count, 1), ReduceOp::sum);
    EXPECT_EQ(count, 64);
  });
  outcome.rethrow();
  EXPECT_GT(outcome.bytes, 64 * (std::size_t{1} << 24));
  EXPECT_GT(to_seconds(outcome.elapsed), 2 * 63 / 64.0 * (1 << 24) / 1e9);
}

}  // namespace
}  // namespace weft::sim
