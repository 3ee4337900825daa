#include <gtest/gtest.h>

#include "collectives/p2p/algorithms.hpp"
#include "harness/sanitizers.hpp"
#include "transport/sim/simulation.hpp"

namespace weft::p2p {
namespace {

/// Thousands of ranks, real bytes: every element is the sum of all ranks' numbers.
TEST(ManySimulatedRanks, AllReduceIsRight) {
  for (auto const* name : {"halving_doubling", "double_tree", "recursive_doubling"}) {
    auto const& algorithm = *find_algorithm(Operation::all_reduce, name);
    int const ranks = test::unless_sanitized(1025, 130);
    auto const wanted = static_cast<std::int64_t>(ranks) * (ranks - 1) / 2;
    sim::Options options;
    options.shuffle = true;
    options.jitter = std::chrono::microseconds(5);
    sim::simulate(sim::Topology::flat(ranks), options, [&](Transport& rank) {
      std::vector<std::int64_t> data(101, rank.rank());
      Call call;
      call.contract = {.count = data.size(), .operation = Operation::all_reduce, .dtype = DataType::i64};
      call.send = call.recv = data.data();
      run(algorithm, rank, call, {.chunk_bytes = 128});
      EXPECT_EQ(data, std::vector<std::int64_t>(101, wanted)) << name;
    }).rethrow();
  }
}

/// More contributions than one call of the kernels takes.
TEST(ManySimulatedRanks, RankOrderHoldsBeyondTheKernelsSources) {
  int const ranks = 97;
  for (auto const dtype : {DataType::f32, DataType::bf16}) {
    std::vector<float> total;
    sim::simulate(sim::Topology::flat(ranks), {}, [&](Transport& rank) {
      std::vector<float> wide(64);
      std::vector<BFloat16> narrow(64);
      for (std::size_t i = 0; i < 64; ++i) {
        wide[i] = 1.0F / static_cast<float>(static_cast<std::size_t>(rank.rank()) * 3 + i + 1);
        narrow[i] = to_bfloat16(wide[i]);
      }
      Call call;
      call.contract = {.count = 64, .operation = Operation::all_reduce, .dtype = dtype};
      call.send = call.recv = dtype == DataType::f32 ? static_cast<void*>(wide.data()) : narrow.data();
      run(*find_algorithm(Operation::all_reduce, "ordered"), rank, call);
      for (std::size_t i = 0; i < 64; ++i) {
        float sum = 0;
        for (int r = 0; r < ranks; ++r) {
          auto const value = 1.0F / static_cast<float>(static_cast<std::size_t>(r) * 3 + i + 1);
          sum += dtype == DataType::f32 ? value : to_float(to_bfloat16(value));
        }
        if (dtype == DataType::f32) {
          EXPECT_EQ(wide[i], sum);
        } else {
          EXPECT_EQ(narrow[i].bits, to_bfloat16(sum).bits);
        }
      }
    }).rethrow();
  }
}

}  // namespace
}  // namespace weft::p2p
