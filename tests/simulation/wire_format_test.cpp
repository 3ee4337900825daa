// What crosses simulated hosts as fewer bits: errors beside a reference in double precision, and bytes.
#include "weft/wire_format.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "simulation/simulated_ranks.hpp"
#include "weft/data_parallel.hpp"
#include "weft/error.hpp"

namespace weft::sim {
namespace {

struct Placement {
  int hosts = 2;
  int ranks_per_host = 2;

  [[nodiscard]] int ranks() const noexcept { return hosts * ranks_per_host; }
  [[nodiscard]] int host_of(int rank) const noexcept { return rank / ranks_per_host; }
};

Topology topology_of(Placement const& where) {
  auto topology = Topology::flat(where.ranks(), {10e-6, 1e9});
  topology.ranks_per_host = where.ranks_per_host;
  topology.inside = {1e-6, 10e9};
  return topology;
}

RankOptions rounded(WireFormat wire) {
  RankOptions how{.hierarchical = true};
  how.communicator.config = Config();
  how.communicator.config->flight_recorder = 0;
  how.communicator.config->wire = wire;
  return how;
}

std::vector<float> contribution(int rank, std::size_t count) {
  std::mt19937 random(static_cast<std::uint32_t>(rank) * 77 + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (auto& value : values) value = normal(random);
  return values;
}

/// δ of a value, the largest magnitude of whose block is `largest`.
double rounding(WireFormat wire, double value, double largest) {
  return wire == WireFormat::bf16 ? 0x1p-8 * std::abs(value) : std::max(0x1p-4 * std::abs(value), 0x1p-17 * largest);
}

/// The exact result of an element, and how far a rounded one may be from it. Blocks may begin anywhere: `largest` is
/// that of all values, which fp8's bound only takes for values that are next to nothing.
struct Expected {
  double value = 0;
  double error = 0;
};

std::vector<Expected> expected(Placement const& where, WireFormat wire, ReduceOp op, std::size_t count, bool shared) {
  std::vector<std::vector<double>> hosts(static_cast<std::size_t>(where.hosts), std::vector<double>(count));
  double largest = 0;
  for (int rank = 0; rank < where.ranks(); ++rank) {
    auto const mine = contribution(rank, count);
    auto& host = hosts[static_cast<std::size_t>(where.host_of(rank))];
    for (std::size_t i = 0; i < count; ++i) {
      host[i] += static_cast<double>(mine[i]) / (op == ReduceOp::avg ? where.ranks() : 1);
      largest = std::max(largest, std::abs(host[i]));
    }
  }
  std::vector<Expected> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto& one = all[i];
    for (auto const& host : hosts) {
      one.value += host[i];
      one.error += rounding(wire, host[i], largest) + 1e-6 * std::abs(host[i]);
    }
    if (shared) one.error += rounding(wire, std::abs(one.value) + one.error, largest * where.hosts);
  }
  return all;
}

void expect_within(std::vector<float> const& got, std::vector<Expected> const& wanted, std::size_t first = 0) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    auto const& one = wanted[first + i];
    ASSERT_LE(std::abs(static_cast<double>(got[i]) - one.value), one.error) << "element " << first + i;
  }
}

class WireFormatTest : public ::testing::TestWithParam<WireFormat> {};

TEST_P(WireFormatTest, ResultsAreWithinTheirBoundAndTheSameEverywhere) {
  for (Placement const where : {Placement{2, 1}, Placement{2, 2}, Placement{3, 2}, Placement{4, 3}, Placement{5, 1}}) {
    for (std::size_t const count : {1025, 2000, 4099, 3'000'000 / where.ranks()}) {
      for (ReduceOp const op : {ReduceOp::sum, ReduceOp::avg}) {
        SCOPED_TRACE(testing::Message() << where.hosts << " x " << where.ranks_per_host << ", " << count
                                        << " elements");
        auto const wanted = expected(where, GetParam(), op, count, true);
        std::vector<float> first;
        simulate_ranks(topology_of(where), {.spoil_buffers = true}, rounded(GetParam()), [&](SimulatedRank& self) {
          auto values = contribution(self.world().rank(), count);
          self.world().all_reduce(std::span<float const>(values), std::span(values), op);
          if (first.empty()) {
            expect_within(values, wanted);
            first = values;
          }
          EXPECT_EQ(std::memcmp(first.data(), values.data(), count * sizeof(float)), 0);
        }).rethrow();
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST_P(WireFormatTest, ShardsAreRoundedOnce) {
  Placement const where{3, 2};
  constexpr std::size_t kPart = 5000;
  auto const count = kPart * static_cast<std::size_t>(where.ranks());
  auto const wanted = expected(where, GetParam(), ReduceOp::avg, count, false);
  simulate_ranks(topology_of(where), {.spoil_buffers = true}, rounded(GetParam()), [&](SimulatedRank& self) {
    auto const values = contribution(self.world().rank(), count);
    std::vector<float> part(kPart);
    self.world().reduce_scatter(std::span<float const>(values), std::span(part), ReduceOp::avg);
    expect_within(part, wanted, kPart * static_cast<std::size_t>(self.world().rank()));
  }).rethrow();
}

TEST_P(WireFormatTest, WithFeedbackTheMeanOfManyCallsIsExact) {
  Placement const where{2, 2};
  constexpr std::size_t kCount = 4096;
  constexpr int kCalls = 200;
  auto const wanted = expected(where, GetParam(), ReduceOp::avg, kCount, true);
  double with = 0;  // largest errors of the mean
  double without = 0;
  simulate_ranks(topology_of(where), {}, rounded(GetParam()), [&](SimulatedRank& self) {
    auto const mine = contribution(self.world().rank(), kCount);
    auto const feedback = std::make_shared<WireFeedback>();
    for (auto const& [given, worst] : {std::pair(feedback, &with), std::pair(decltype(feedback)(), &without)}) {
      std::vector<double> sum(kCount);
      for (int call = 0; call < kCalls; ++call) {
        std::vector<float> got(kCount);
        self.world().all_reduce(std::span<float const>(mine), std::span(got), ReduceOp::avg, {.feedback = given});
        for (std::size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(got[i]);
      }
      if (self.world().rank() != 0) continue;
      for (std::size_t i = 0; i < kCount; ++i) {
        auto const error = std::abs(sum[i] / kCalls - wanted[i].value);
        *worst = std::max(*worst, error);
        EXPECT_TRUE(!given || error <= 3 * wanted[i].error / kCalls + 1e-6) << i << ": " << error;
      }
    }
  }).rethrow();
  EXPECT_LT(with * 20, without);
}

TEST_P(WireFormatTest, FewerBytesCrossAndAsManyStayInside) {
  Placement const where{2, 2};
  constexpr std::size_t kCount = 1'000'000;
  auto const crossing = [&](WireFormat wire) {
    Options options;
    options.record = true;
    auto const outcome = simulate_ranks(topology_of(where), options, rounded(wire), [&](SimulatedRank& self) {
      auto values = contribution(self.world().rank(), kCount);
      self.world().all_reduce(std::span<float const>(values), std::span(values), ReduceOp::sum);
    });
    outcome.rethrow();
    std::pair<std::uint64_t, std::uint64_t> bytes;  // between hosts, inside
    for (auto const& event : outcome.trace) {
      if (event.kind != TraceEvent::Kind::send) continue;
      (where.host_of(event.rank) == where.host_of(event.peer) ? bytes.second : bytes.first) += event.bytes;
    }
    return bytes;
  };
  auto const whole = crossing(WireFormat::f32);
  auto const less = crossing(GetParam());
  auto const share = GetParam() == WireFormat::bf16 ? 0.5 : 33.0 / 32 / 4;
  EXPECT_NEAR(static_cast<double>(less.first) / static_cast<double>(whole.first), share, 0.01);
  EXPECT_NEAR(static_cast<double>(less.second) / static_cast<double>(whole.second), 1, 0.01);
}

TEST_P(WireFormatTest, OthersCrossAsTheyAre) {
  Placement const where{2, 2};
  simulate_ranks(topology_of(where), {}, rounded(GetParam()), [&](SimulatedRank& self) {
    auto& world = self.world();
    auto const mine = 1 + 0x1p-23F * static_cast<float>(world.rank() + 1);  // no bit of it may go
    std::vector<float> values(5000, mine);
    std::vector<float> most(values.size());
    world.all_reduce(std::span<float const>(values), std::span(most), ReduceOp::max);
    EXPECT_EQ(most[4321], 1 + 0x1p-21F);
    std::vector<float> all(values.size() * 4);
    world.all_gather(std::span<float const>(values), std::span(all));
    EXPECT_EQ(all[5000], 1 + 0x1p-22F);
    std::vector<double> doubles(5000, 1e-9);
    world.all_reduce(std::span<double const>(doubles), std::span(doubles), ReduceOp::sum);
    EXPECT_EQ(doubles[0], 4e-9);
    std::vector<float> few(100, mine);  // small calls
    world.all_reduce(std::span<float const>(few), std::span(few), ReduceOp::sum);
    EXPECT_NEAR(few[0], 4 + 10 * 0x1p-23F, 0x1p-21F);
    world.broadcast(std::span(values), 3);
    EXPECT_EQ(values[1], 1 + 0x1p-21F);
  }).rethrow();
}

TEST_P(WireFormatTest, BucketsHaveFeedbackOfTheirOwn) {
  Placement const where{2, 1};
  constexpr std::size_t kCount = 2048;
  constexpr int kSteps = 100;
  auto const wanted = expected(where, GetParam(), ReduceOp::avg, kCount, true);
  simulate_ranks(topology_of(where), {}, rounded(GetParam()), [&](SimulatedRank& self) {
    auto const mine = contribution(self.world().rank(), kCount);
    std::vector<float> parameters(kCount);
    DataParallel ddp(self.world(), {std::span(parameters)});
    std::vector<double> sum(kCount);
    for (int step = 0; step < kSteps; ++step) {
      auto* const gradient = static_cast<float*>(ddp.gradient(0).data);
      std::copy(mine.begin(), mine.end(), gradient);
      ddp.mark_ready(0);
      ddp.finish();
      for (std::size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(gradient[i]);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_LE(std::abs(sum[i] / kSteps - wanted[i].value), 3 * wanted[i].error / kSteps + 1e-6) << i;
    }
  }).rethrow();
}

TEST_P(WireFormatTest, BitsDoNotDependOnWhereABufferIsCutWhereTheyMayNot) {
  if (GetParam() == WireFormat::fp8) GTEST_SKIP() << "fp8's blocks begin with parts";
  constexpr std::size_t kCount = 20'000;
  simulate_ranks(topology_of({2, 2}), {}, rounded(GetParam()), [&](SimulatedRank& self) {
    auto const values = contribution(self.world().rank(), kCount);
    std::vector<float> whole(kCount);
    std::vector<float> pieces(kCount);
    self.world().all_reduce(std::span(values), std::span(whole), ReduceOp::avg);
    for (std::size_t first = 0; first < kCount; first += 5000) {
      self.world().all_reduce(std::span(values).subspan(first, 5000), std::span(pieces).subspan(first, 5000),
                              ReduceOp::avg);
    }
    EXPECT_EQ(whole, pieces);
  }).rethrow();
}

INSTANTIATE_TEST_SUITE_P(Formats, WireFormatTest, testing::Values(WireFormat::bf16, WireFormat::fp8),
                         [](auto const& one) { return std::string(to_string(one.param)); });

}  // namespace
}  // namespace weft::sim
