#include <gtest/gtest.h>

#include <cmath>

#include "collectives/p2p/algorithms.hpp"
#include "transport/sim/simulation.hpp"

namespace weft::p2p {
namespace {

constexpr double kAlpha = 3e-6;
constexpr double kBeta = 1e-9;
constexpr std::size_t kChunk = 4096;

/// What a simulated call takes on an idle flat network, sizes alone.
double simulate_s(Algorithm const& algorithm, int ranks, std::size_t bytes, double gamma) {
  sim::Options options;
  options.carries_data = false;
  options.reduction_s_per_byte = gamma;
  auto const outcome = sim::simulate(sim::Topology::flat(ranks, {kAlpha, 1 / kBeta}), options, [&](Transport& rank) {
    Call call;
    call.contract.operation = algorithm.operation;
    call.contract.dtype = DataType::f32;
    call.contract.count = bytes / 4;
    call.contract.root = static_cast<std::uint32_t>(ranks - 1);
    call.send = call.recv = rank.phantom();
    run(algorithm, rank, call, {.chunk_bytes = kChunk});
  });
  outcome.rethrow();
  return sim::to_seconds(outcome.elapsed);
}

CostQuestion question(int ranks, std::size_t bytes, double gamma) {
  return {kAlpha, kBeta, gamma, ranks, static_cast<double>(bytes), kChunk};
}

bool is_exact(Algorithm const& algorithm, int ranks) {
  return algorithm.exact == Exact::always ||
         (algorithm.exact == Exact::powers_of_two && std::has_single_bit(static_cast<unsigned>(ranks)));
}

/// Bytes that every number of ranks here divides into whole cache lines and chunks.
std::size_t divisible_bytes(int ranks) {
  return static_cast<std::size_t>(ranks) * std::bit_ceil(static_cast<unsigned>(ranks)) * 8192;
}

TEST(Cost, SimulatedTimesAreThoseOfTheFormulas) {
  for (auto const& algorithm : algorithms()) {
    for (int const ranks : {2, 3, 4, 5, 7, 8, 12, 13, 16, 17, 32, 33}) {
      auto const bytes = divisible_bytes(ranks);
      auto const simulated = simulate_s(algorithm, ranks, bytes, 0);
      auto formula = algorithm.cost_s(question(ranks, bytes, 0));
      // What is sent on to a root that is not the last: here it is.
      if (algorithm.operation == Operation::reduce && algorithm.name == "chain") formula -= kAlpha + kChunk * kBeta;
      auto const where = std::string(to_string(algorithm.operation)) + " " + std::string(algorithm.name) + ", " +
                         std::to_string(ranks) + " ranks";
      if (is_exact(algorithm, ranks)) {
        EXPECT_NEAR(simulated, formula, 1e-6 * formula) << where;
      } else {
        EXPECT_LE(simulated, formula * (1 + 1e-9)) << where;
        EXPECT_GE(simulated, formula / 4) << where;
      }
    }
  }
}

TEST(Cost, CombiningIsInTheFormulas) {
  constexpr double kGamma = 0.25e-9;
  for (auto const* name : {"ring", "recursive_doubling", "halving_doubling", "exchange"}) {
    auto const& algorithm = *find_algorithm(Operation::all_reduce, name);
    for (int const ranks : {2, 8, 32}) {
      auto const bytes = divisible_bytes(ranks);
      auto const formula = algorithm.cost_s(question(ranks, bytes, kGamma));
      EXPECT_NEAR(simulate_s(algorithm, ranks, bytes, kGamma), formula, 1e-6 * formula) << name << " " << ranks;
    }
  }
  // A bound, wherever combining or the network is the slower one; close to it where there are many chunks.
  for (double const gamma : {kGamma, 4 * kBeta}) {
    for (int const ranks : {2, 3, 8}) {
      auto const& ordered = *find_algorithm(Operation::all_reduce, "ordered");
      auto const bytes = 64 * divisible_bytes(ranks);
      auto const formula = ordered.cost_s(question(ranks, bytes, gamma));
      auto const simulated = simulate_s(ordered, ranks, bytes, gamma);
      EXPECT_LE(simulated, formula * (1 + 1e-9)) << ranks << " " << gamma;
      EXPECT_GE(simulated, 0.9 * formula) << ranks << " " << gamma;
    }
  }
  for (auto const& [operation, name] : {std::pair{Operation::reduce_scatter, "ring"},
                                        {Operation::reduce_scatter, "pairwise"},
                                        {Operation::scan, "doubling"},
                                        {Operation::scan, "chain"}}) {
    auto const& algorithm = *find_algorithm(operation, name);
    auto const formula = algorithm.cost_s(question(8, divisible_bytes(8), kGamma));
    EXPECT_NEAR(simulate_s(algorithm, 8, divisible_bytes(8), kGamma), formula, 1e-6 * formula) << name;
  }
}

// Between two ranks both move as many bytes; sums in rank order that halve the buffer take a step more.
TEST(Cost, OfEqualOnesTheOneThatWaitsLeastOftenIsChosen) {
  Call call;
  call.contract = {.count = 65536, .operation = Operation::all_reduce, .dtype = DataType::f32};
  CostQuestion network{.alpha_s = 4e-6,
                       .beta_s_per_byte = 8e-9,
                       .gamma_s_per_byte = 1 / 8e9,
                       .ranks = 2,
                       .chunk_bytes = 256 << 10,
                       .message_s = kMessageSeconds};
  EXPECT_EQ(choose(call, network, true).algorithm.name, "exchange");
  network.bytes = static_cast<double>(call.bytes());
  EXPECT_LT(find_algorithm(Operation::all_reduce, "ordered")->cost_s(network),
            find_algorithm(Operation::all_reduce, "exchange")->cost_s(network))
      << "the formulas alone would choose the other";
  network.ranks = 8;  // where the exchange moves four times as many bytes
  EXPECT_EQ(choose(call, network, true).algorithm.name, "ordered");
}

}  // namespace
}  // namespace weft::p2p
