// Measured costs become limits of sizes.
#include "collectives/shm/tuner.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>

#include "collectives/shm/cost_model.hpp"
#include "cost_models.hpp"

namespace weft::shm {
namespace {

using test::cost;
using test::kKiB;
using test::model;

constexpr std::size_t kLargestBlock = 400 * kKiB;

Tuning tuning(int ranks) {
  Topology topology;
  topology.l2_bytes = 1024 * kKiB;
  topology.l3_bytes = 32 * 1024 * kKiB;
  topology.cores = 8;
  return make_tuning(topology, Config{}, ranks, 8, false);
}

std::size_t all_reduce_limit(CostModel const& model) {
  return tune(Selector::derive(tuning(2), 2), model, kLargestBlock).rules(Collective::all_reduce).small[0].up_to;
}

TEST(CostModel, LineThroughSamples) {
  auto const line = fit({{1000, 300}, {2000, 400}, {4000, 600}});
  EXPECT_NEAR(200, line.fixed_ns, 1e-6);
  EXPECT_NEAR(0.1, line.ns_per_byte, 1e-9);
  EXPECT_EQ(0, fit({{1000, 500}, {2000, 400}}).ns_per_byte) << "more bytes are never cheaper";
  EXPECT_EQ(0, fit({{1000, 100}, {2000, 400}}).fixed_ns);
  EXPECT_EQ(0, fit({{1000, 100}}).at(1000)) << "one sample makes no line";
}

TEST(CostModel, LimitsFollowPredictions) {
  ASSERT_EQ(128 * kKiB, all_reduce_limit(CostModel{})) << "unmeasured: as derived";
  EXPECT_EQ(128 * kKiB, all_reduce_limit(model(50.0 * 128)));
  EXPECT_EQ(256 * kKiB, all_reduce_limit(model(50.0 * 400)));
  EXPECT_EQ(64 * kKiB, all_reduce_limit(model(50.0 * 80)));
  EXPECT_EQ(512 * kKiB, all_reduce_limit(model(50.0 * 100'000))) << "at most two powers of two away";
  EXPECT_EQ(64 * kKiB, all_reduce_limit(model(0))) << "nothing below was measured";
}

TEST(CostModel, PredictsWhatTheMemoryAdmits) {
  auto const costs = model(1000);
  auto const said = [&](Memory memory) { return describe(costs, Collective::all_reduce, 10 * kKiB, memory); };
  EXPECT_EQ("predicted for 10 KiB as call / with its effects: swapped 1 / 1 us, direct 1.5 / 1.5 us",
            said(Memory::any));
  EXPECT_EQ(said(Memory::any), said(Memory::symmetric));
  EXPECT_EQ("predicted for 10 KiB as call / with its effects: swapped 1 / 1 us", said(Memory::other));
}

TEST(CostModel, SmallGainsMoveNothing) {
  auto noisy = model(0);
  noisy.of(Collective::all_reduce, Algorithm::direct) = cost(1, 95);
  EXPECT_EQ(128 * kKiB, all_reduce_limit(noisy));
  noisy.of(Collective::all_reduce, Algorithm::direct) = cost(1, 105);
  EXPECT_EQ(128 * kKiB, all_reduce_limit(noisy));
}

TEST(CostModel, CallAndLoopCountAlike) {
  auto torn = model(50.0 * 400);  // at 256 KiB swapped costs the loop 25.6 us, and direct 32.8
  auto& swapped = torn.of(Collective::all_reduce, Algorithm::swapped);
  auto const call_ns = [&](double ns) { swapped.call = {ns, 0}; };
  call_ns(33'000);
  EXPECT_EQ(256 * kKiB, all_reduce_limit(torn));
  call_ns(1.1 * 32'800);
  EXPECT_EQ(128 * kKiB, all_reduce_limit(torn)) << "0.78 x 1.1 is no gain of a tenth in their mean";
}

TEST(CostModel, LoopsThatCostNextToNothingAreNotBelieved) {
  auto noisy = model(50.0 * 200);  // at 256 KiB swapped costs 25.6 us, and direct 22.8: no gain of a tenth
  auto& swapped = noisy.of(Collective::all_reduce, Algorithm::swapped);
  auto& direct = noisy.of(Collective::all_reduce, Algorithm::direct);
  swapped.loop = {60, 0.0001};
  direct.loop = {100, 0.0009};
  EXPECT_EQ(128 * kKiB, all_reduce_limit(noisy)) << "86 and 336 ns a loop say nothing";
  direct.call = {0, 300.0 / 1024};
  EXPECT_EQ(512 * kKiB, all_reduce_limit(noisy)) << "the calls do";
  EXPECT_TRUE(pays({4096, 1000}, {4096, 10}, {4096, 1500}, {4096, 10}));
  EXPECT_FALSE(pays({4096, 1000}, {4096, 300}, {4096, 1000}, {4096, 500}));
  EXPECT_FALSE(pays({4096, 1000}, {4096, 10}, {4096, 1000}, {4096, 500}));
}

TEST(CostModel, BlocksStayWithinTheirRings) {
  // Four ranks: one phase, then two; each takes a call as one block.
  auto const derived = Selector::derive(tuning(4), 4);
  CostModel cheap;
  cheap.synchronisation_ns = 100;
  for (auto const collective : {Collective::all_reduce, Collective::broadcast, Collective::reduce_scatter}) {
    for (auto const algorithm : {Algorithm::one_phase, Algorithm::two_phase, Algorithm::staged, Algorithm::fed})
      cheap.of(collective, algorithm) = cost(1, algorithm == Algorithm::one_phase ? 1 : 50);
    cheap.of(collective, Algorithm::direct) = cost(1, 1000);
  }
  auto const tuned = tune(derived, cheap, kLargestBlock);
  for (auto const collective : {Collective::all_reduce, Collective::broadcast, Collective::reduce_scatter}) {
    for (auto const& choice : tuned.rules(collective).small) EXPECT_LE(choice.chunk_bytes, kLargestBlock);
  }
  auto const& all_reduce = tuned.rules(Collective::all_reduce).small;
  EXPECT_EQ(4 * derived.rules(Collective::all_reduce).small[0].up_to, all_reduce[0].up_to);
  EXPECT_LT(all_reduce[0].up_to, all_reduce[1].up_to) << "sizes stay in order";
  EXPECT_EQ(derived.rules(Collective::all_reduce).other, tuned.rules(Collective::all_reduce).other);
}

/// Two ranks that may read one another's private memory.
Selector derive_readers() {
  auto reading = tuning(2);
  reading.reads_peers = true;
  return Selector::derive(reading, 2);
}

/// Staged costs 100 ns a KiB, fetched `slope`.
CostModel private_model(Collective collective, Algorithm staged, double slope) {
  CostModel model;
  model.synchronisation_ns = 100;
  model.streaming_bytes = 8192 * kKiB;
  model.of(collective, staged, Place::private_long) = cost(0, 100);
  model.of(collective, Algorithm::fetched, Place::private_long) = cost(0, slope);
  return model;
}

TEST(CostModel, PrivateMemoryIsFetchedWhereThatWins) {
  auto const derived = derive_readers();
  auto const staged = Algorithm::swapped;
  for (auto const collective : {Collective::all_gather, Collective::pull}) {
    auto const other = [&](double slope, std::size_t streaming = 8192 * kKiB) {
      auto costs = private_model(collective, staged, slope);
      costs.streaming_bytes = streaming;
      return tune(derived, costs, kLargestBlock).rules(collective).other;
    };
    auto const as_derived = derived.rules(collective).other;
    EXPECT_EQ(as_derived, other(1000));
    EXPECT_EQ(as_derived, other(95)) << "a small gain moves nothing";
    EXPECT_EQ(as_derived, other(10, 0)) << "it is not known how far the caches reach";
    EXPECT_EQ(as_derived, other(10, 2048 * kKiB)) << "nor here, where what was measured bypasses them";

    auto const fetched = other(80);
    EXPECT_EQ((Choice{1024 * kKiB, as_derived[0].chunk_bytes, staged}), fetched[0]);
    EXPECT_EQ((Choice{8192 * kKiB, 0, Algorithm::fetched}), fetched[1]);
    EXPECT_EQ(as_derived[0], fetched[2]) << "beyond the caches nothing was measured";
  }
  auto half = private_model(Collective::pull, staged, 50);
  half.of(Collective::pull, staged, Place::private_long) = {};
  EXPECT_EQ(derived, tune(derived, half, kLargestBlock)) << "where there was no time for both, as derived";
}

TEST(CostModel, AGatherStandsForAllWithARoot) {
  auto const derived = derive_readers();
  auto const tuned = tune(derived, private_model(Collective::gather, Algorithm::fed, 50), kLargestBlock);
  for (auto const collective : {Collective::gather, Collective::broadcast, Collective::scatter})
    EXPECT_EQ(Algorithm::fetched, tuned.by_memory(collective, 2048 * kKiB, Memory::other).algorithm);
  for (auto const collective : {Collective::all_gather, Collective::pull})
    EXPECT_EQ(derived.rules(collective), tuned.rules(collective));
  EXPECT_EQ(derived, tune(derived, private_model(Collective::scatter, Algorithm::fed, 50), kLargestBlock));
}

TEST(CostModel, WhatIsFetchedUnmeasuredIsFedWhereThatWins) {
  auto reading = tuning(4);
  reading.reads_peers = true;
  auto const derived = Selector::derive(reading, 4).rules(Collective::scatter).other;
  ASSERT_EQ(Algorithm::fetched, derived[1].algorithm);
  auto const other = [&](double slope) {
    return tune(Selector::derive(reading, 4), private_model(Collective::gather, Algorithm::fed, slope), kLargestBlock)
        .rules(Collective::scatter)
        .other;
  };
  auto fed = derived[0];
  fed.up_to = 1024 * kKiB;
  EXPECT_EQ((Choices{fed, derived[1]}), other(50)) << "sooner";
  EXPECT_EQ(derived, other(100));
  fed.up_to = 8192 * kKiB;
  EXPECT_EQ((Choices{fed, derived[1]}), other(200)) << "beyond the caches nothing was measured";
}

TEST(CostModel, WhatRanksMeasureInOneAnothersPrivateMemoryIsNotForThoseThatMayNotReachIt) {
  auto reading = tuning(4);
  reading.reads_peers = true;
  EXPECT_NE(describe_machine({}, reading, 4, {0, 1, 2, 3}, 64), describe_machine({}, tuning(4), 4, {0, 1, 2, 3}, 64));
}

TEST(CostModel, PredictsPrivateMemoryByItsOwnCosts) {
  auto costs = private_model(Collective::pull, Algorithm::swapped, 50);
  costs.of(Collective::pull, Algorithm::swapped) = cost(1, 1);
  auto const said = [&](std::size_t bytes, Memory memory) { return describe(costs, Collective::pull, bytes, memory); };
  EXPECT_EQ("predicted for 10 KiB as call / with its effects: swapped 0.011 / 0.011 us",
            said(10 * kKiB, Memory::other));
  EXPECT_EQ("predicted for 2 MiB as call / with its effects: swapped 205 / 205 us, fetched 102 / 102 us",
            said(2048 * kKiB, Memory::other));
  EXPECT_EQ("predicted for 2 MiB as call / with its effects: swapped 2.05 / 2.05 us",
            said(2048 * kKiB, Memory::symmetric));
}

TEST(CostModel, TwoLevelsWhereTheyWin) {
  auto const derived = Selector::derive(tuning(16), 16);
  CostModel measured;
  measured.synchronisation_ns = 100;
  measured.of(Collective::broadcast, Algorithm::fed) = cost(100, 100);
  measured.of(Collective::broadcast, Algorithm::direct) = cost(100, 100);
  EXPECT_EQ(derived, tune(derived, measured, kLargestBlock)) << "never unmeasured";
  measured.of(Collective::broadcast, Algorithm::two_level) = cost(100, 95);
  EXPECT_EQ(derived, tune(derived, measured, kLargestBlock)) << "nor for a small gain";
  measured.of(Collective::broadcast, Algorithm::two_level) = cost(200, 50);
  auto const tuned = tune(derived, measured, kLargestBlock).rules(Collective::broadcast);
  EXPECT_EQ(Algorithm::two_level, tuned.small[0].algorithm);
  EXPECT_EQ(Algorithm::two_level, tuned.other[0].algorithm);
  EXPECT_EQ(Algorithm::direct, tuned.symmetric[0].algorithm);
}

TEST(CostModel, CallsInPlaceHaveALimitOfTheirOwn) {
  auto const rules_of = [](double fixed, double fixed_in_place) {
    auto costs = model(fixed);
    for (auto const algorithm : {Algorithm::swapped, Algorithm::direct})
      costs.of(Collective::all_reduce, algorithm, Place::in_place) =
          model(fixed_in_place).of(Collective::all_reduce, algorithm);
    return tune(Selector::derive(tuning(2), 2), costs, kLargestBlock).rules(Collective::all_reduce);
  };
  auto const expect = [](Rules const& rules, std::size_t any, Memory later, std::size_t up_to) {
    EXPECT_EQ(any, rules.small[0].up_to);
    auto const other = later == Memory::in_place ? Memory::symmetric : Memory::in_place;
    EXPECT_EQ(Algorithm::swapped, rules.in(later)[0].algorithm);
    EXPECT_EQ(up_to, rules.in(later)[0].up_to);
    EXPECT_EQ((Choice{Choice::kUnlimited, 0, Algorithm::direct}), rules.in(later)[1]);
    EXPECT_EQ((Choice{Choice::kUnlimited, 0, Algorithm::direct}), rules.in(other)[0]);
  };
  expect(rules_of(50.0 * 400, 50.0 * 20), 64 * kKiB, Memory::symmetric, 256 * kKiB);
  expect(rules_of(50.0 * 20, 50.0 * 400), 64 * kKiB, Memory::in_place, 256 * kKiB);
  auto const equal = rules_of(50.0 * 400, 50.0 * 400);
  EXPECT_EQ(256 * kKiB, equal.small[0].up_to);
  EXPECT_EQ(equal.symmetric, equal.in_place);
  EXPECT_EQ(Algorithm::direct, equal.symmetric[0].algorithm);
}

// Where lines of a peer are far away, staging wins as long as the caches hold what is staged.
TEST(CostModel, LongCallsInSymmetricMemoryAreStagedWhereThatWins) {
  auto const derived = Selector::derive(tuning(2), 2);
  auto const tuned = [&](Collective collective, double staged, double direct, std::size_t streaming) {
    CostModel costs;
    costs.synchronisation_ns = 100;
    costs.streaming_bytes = streaming;
    costs.of(collective, derived.rules(collective).other[0].algorithm, Place::symmetric_long) = cost(0, staged);
    costs.of(collective, Algorithm::direct, Place::symmetric_long) = cost(0, direct);
    return tune(derived, costs, kLargestBlock);
  };
  for (auto const collective : kDirect) {
    auto const before = derived.rules(collective);
    EXPECT_EQ(derived, tuned(collective, 100, 100, 8192 * kKiB));
    EXPECT_EQ(derived, tuned(collective, 95, 100, 8192 * kKiB)) << "a small gain moves nothing";
    EXPECT_EQ(derived, tuned(collective, 10, 100, 0)) << "it is not known how far the caches reach";
    auto const after = tuned(collective, 80, 100, 8192 * kKiB).rules(collective);
    EXPECT_EQ(before.other[0].algorithm, after.symmetric[0].algorithm) << to_string(collective);
    EXPECT_EQ(before.other[0].chunk_bytes, after.symmetric[0].chunk_bytes);
    EXPECT_EQ(8192 * kKiB, after.symmetric[0].up_to);
    EXPECT_EQ((Choice{Choice::kUnlimited, 0, Algorithm::direct}), after.symmetric[1]);
    EXPECT_EQ(before.small, after.small);
    EXPECT_EQ(before.in_place, after.in_place) << "lines that are read there are written, too";
    EXPECT_EQ(before.other, after.other);
  }
}

TEST(CostModel, WhatWasMeasuredCloserIsNotOverruledByLongCalls) {
  auto costs = model(50.0 * 20);  // direct wins from 64 KiB on, and below, where it is not taken
  costs.streaming_bytes = 8192 * kKiB;
  costs.of(Collective::all_reduce, Algorithm::swapped, Place::symmetric_long) = cost(0, 80);
  costs.of(Collective::all_reduce, Algorithm::direct, Place::symmetric_long) = cost(0, 100);
  auto const rules = tune(Selector::derive(tuning(2), 2), costs, kLargestBlock).rules(Collective::all_reduce);
  EXPECT_EQ(64 * kKiB, rules.small[0].up_to);
  EXPECT_EQ(Algorithm::direct, rules.symmetric[0].algorithm);
}

}  // namespace
}  // namespace weft::shm
