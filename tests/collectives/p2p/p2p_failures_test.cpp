#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string>

#include "collectives/p2p/simulated_case.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

/// A run of `algorithm` on seven ranks, with data enough for several chunks.
SimulatedRun seven_ranks(p2p::Algorithm const& algorithm) {
  SimulatedRun run(3, 0);
  run.algorithm = &algorithm;
  run.one = {};
  run.one.ranks = 7;
  run.one.kind = kind_of(algorithm.operation);
  run.one.count = 509;
  run.topology = sim::Topology::flat(7, {2e-6, 1e9});
  run.options.jitter = {};
  run.options.stragglers.clear();
  run.tuning.chunk_bytes = 256;
  return run;
}

/// Wherever in an algorithm a rank is lost, all that need more of it, or of each other, end and name it.
TEST(P2pFailures, ALostRankIsNamedWheneverItIsLost) {
  for (auto const& algorithm : p2p::algorithms()) {
    auto const run = seven_ranks(algorithm);
    auto const whole = run.run().elapsed;
    Contributions const contributions(run.one);
    for (int moment = 0; moment < 8; ++moment) {
      auto options = run.options;
      auto const lost = moment % 7;
      options.losses = {{lost, whole * moment / 8}};
      std::vector<std::unique_ptr<SimulatedRank>> ranks;
      for (int r = 0; r < 7 && algorithm.operation != Operation::barrier; ++r) {
        ranks.push_back(std::make_unique<SimulatedRank>(run.one, contributions, r));
      }
      auto const outcome = sim::simulate(run.topology, options, [&](Transport& rank) {
        Call const barrier;
        auto const& call = ranks.empty() ? barrier : ranks[static_cast<std::size_t>(rank.rank())]->call();
        for (int i = 0; i < 2; ++i) p2p::run(algorithm, rank, call, run.tuning);  // the second reaches the lost one
      });
      int named = 0;
      for (std::size_t r = 0; r < 7; ++r) {
        if (!outcome.errors[r]) continue;
        try {
          std::rethrow_exception(outcome.errors[r]);
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
          auto const name = "rank " + std::to_string(lost) + " was lost";
          EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
          ++named;
        }
      }
      if (algorithm.operation == Operation::all_reduce) {
        EXPECT_EQ(named, 6) << algorithm.name << " " << moment;
      }
    }
  }
}

TEST(P2pFailures, RanksThatCallDifferentlyAreTold) {
  auto const& algorithm = *p2p::find_algorithm(Operation::all_reduce, "ring");
  auto const outcome = sim::simulate(sim::Topology::flat(4), {}, [&](Transport& rank) {
    std::vector<float> data(rank.rank() == 2 ? 640 : 512);
    Call call;
    call.contract = {.count = data.size(), .operation = Operation::all_reduce, .dtype = DataType::f32};
    call.send = call.recv = data.data();
    p2p::run(algorithm, rank, call);
  });
  EXPECT_THROW(
      try { outcome.rethrow(); } catch (Error const& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch);
        EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
        throw;
      },
      Error);
}

/// One of two ranks, whose memory ends when it sends.
class ExhaustedTransport final : public Transport {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 2; }
  [[nodiscard]] Request start_send(int /*to*/, std::span<std::byte const> /*bytes*/) override {
    throw std::bad_alloc();
  }
  [[nodiscard]] Request start_recv(int /*from*/, std::span<std::byte> bytes) override {
    received_ = bytes;
    return Request{1};
  }
  void wait(Request& request) override { request = Request::none; }
  void fail(ErrorCode code, std::string const& message) noexcept override {
    std::fill(received_.begin(), received_.end(), std::byte{1});  // is there yet
    code_ = code;
    message_ = message;
  }

  std::optional<ErrorCode> code_;
  std::string message_;

 private:
  std::span<std::byte> received_;
};

TEST(P2pFailures, AllAreToldOfARankThatHasNoMemoryLeftBeforeItGivesUpWhatIsUnderWay) {
  std::vector<float> data(512);
  Call call;
  call.contract = {.count = data.size(), .operation = Operation::all_reduce, .dtype = DataType::f32};
  call.send = call.recv = data.data();
  for (auto const& algorithm : p2p::algorithms()) {
    if (!p2p::can_run(algorithm, call)) continue;
    ExhaustedTransport transport;
    EXPECT_THROW(p2p::run(algorithm, transport, call), std::bad_alloc) << algorithm.name;
    EXPECT_EQ(transport.code_, ErrorCode::out_of_memory) << algorithm.name;
    EXPECT_NE(transport.message_.find("rank 0: all_reduce("), std::string::npos) << transport.message_;
  }
}

TEST(P2pFailures, WhatAnAlgorithmCannotDoIsRefused) {
  auto const refused = [](Operation operation, char const* name, Call const& call) {
    auto const outcome = sim::simulate(sim::Topology::flat(2), {}, [&](Transport& rank) {
      p2p::run(*p2p::find_algorithm(operation, name), rank, call);
    });
    try {
      outcome.rethrow();
    } catch (Error const& error) {
      EXPECT_EQ(outcome.messages, 0U);
      return error.code() == ErrorCode::unsupported;
    }
    return false;
  };
  Call user;
  user.contract = {.operation = Operation::all_reduce, .reduce = ReduceOp::user};
  EXPECT_TRUE(refused(Operation::all_reduce, "ring", user));
  Call unequal;
  unequal.contract = {.operation = Operation::all_gather_v};
  EXPECT_TRUE(refused(Operation::all_gather, "recursive_doubling", unequal));
  EXPECT_TRUE(refused(Operation::all_reduce, "ring", unequal));
  EXPECT_EQ(p2p::find_algorithm(Operation::all_reduce, "magic"), nullptr);
}

}  // namespace
}  // namespace weft::test
