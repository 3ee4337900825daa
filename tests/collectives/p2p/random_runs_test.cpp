#include <gtest/gtest.h>

#include "collectives/cases/random_run.hpp"
#include "collectives/p2p/simulated_case.hpp"
#include "harness/sanitizers.hpp"

namespace weft::test {
namespace {

/// Every algorithm in turn on 2 to 17 ranks. WEFT_TEST_CASES=100000 for a long run.
TEST(RandomRuns, AllAlgorithmsGiveWhatASerialComputationGives) {
  RandomRun const random(unless_sanitized(6000, 900));
  for (std::uint64_t number = 0; number < random.cases; ++number) {
    if (random.only && *random.only != number) continue;
    SimulatedRun const run(random.seed, number);
    try {
      static_cast<void>(run.run());
    } catch (std::exception const& error) {
      FAIL() << "WEFT_TEST_SEED=" << random.seed << " WEFT_TEST_CASE=" << number << ": " << run.describe() << ": "
             << error.what();
    }
  }
}

TEST(RandomRuns, EqualSeedsGiveEqualTraces) {
  for (std::uint64_t number = 0; number < p2p::algorithms().size(); ++number) {
    SimulatedRun run(7, number + 9 * p2p::algorithms().size());
    run.options.record = true;
    auto const first = run.run();
    auto const again = run.run();
    EXPECT_FALSE(first.trace.empty()) << run.describe();
    EXPECT_EQ(first.trace, again.trace) << run.describe();
    run.options.jitter = std::chrono::microseconds(30);
    run.options.seed += 1;
    if (first.messages > 0) {
      EXPECT_NE(run.run().trace, first.trace) << run.describe();
    }
  }
}

/// Which bits come out does not depend on where ranks lie: they are those of a serial combination in rank order.
TEST(RandomRuns, TheOrderedAllReduceGivesTheSameBitsOnEveryPlacement) {
  for (auto const dtype : {DataType::f32, DataType::bf16, DataType::f8e4m3, DataType::c64}) {
    for (auto const op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}) {
      for (int const per_host : {1, 2, 4, 8}) {
        SimulatedRun run(1, 0);
        run.algorithm = p2p::find_algorithm(Operation::all_reduce, "ordered");
        run.one = {};
        run.one.ranks = 8;
        run.one.dtype = dtype;
        run.one.op = op;
        run.one.count = 1013;
        run.one.values = Values::everyday;
        run.topology = sim::Topology::flat(8);
        run.topology.ranks_per_host = per_host;
        run.options.stragglers.clear();
        EXPECT_NO_THROW(static_cast<void>(run.run())) << run.describe();  // compares bits
      }
    }
  }
}

TEST(RandomRuns, SixteenBitFloatsMayTravelAsSuch) {
  for (auto const dtype : {DataType::f16, DataType::bf16}) {
    for (auto const* name : {"ring", "halving_doubling", "recursive_doubling", "double_tree", "bidirectional_ring"}) {
      std::uint64_t bytes[2] = {};
      for (bool const narrow : {false, true}) {
        SimulatedRun run(1, 0);
        run.algorithm = p2p::find_algorithm(Operation::all_reduce, name);
        run.one = {};
        run.one.ranks = 8;
        run.one.dtype = dtype;
        run.one.count = 8 * 64;
        run.one.values = Values::whole;  // sums that 16 bits hold
        run.topology = sim::Topology::flat(8);
        run.options.stragglers.clear();
        run.tuning = {4096, narrow};
        bytes[narrow ? 1 : 0] = run.run().bytes;
      }
      EXPECT_LT(bytes[1], bytes[0]) << name;
    }
  }
}

}  // namespace
}  // namespace weft::test
