// Far more ranks than cores: every operation, as threads and as processes, and one of them killed.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <thread>

#include "collectives/cases/attempt.hpp"
#include "collectives/cases/random_run.hpp"
#include "harness/ranks.hpp"
#include "harness/sanitizers.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kCasesOfAKind = unless_sanitized(10, 1);

RandomRun const& this_run() {
  static RandomRun const run(kCasesOfAKind);
  return run;
}

/// Every rank checks what all ranks gave, so that the work grows with the square of their number.
bool is_small(Case const& one) {
  return one.count * static_cast<std::size_t>(one.ranks) * size_of(one.dtype) <= std::size_t{256} << 10U;
}

/// `this_run().cases` random cases of every operation.
void run_every_operation(Communicator& world) {
  auto const& run = this_run();
  Arena arena(world, 2, std::size_t{32} << 10U);
  std::array<std::uint64_t, kKinds> made{};
  std::uint64_t left = run.cases * kKinds;
  for (std::uint64_t number = 0; left > 0; ++number) {
    auto const one = make_case(run.seed, number, world.size());
    auto& of_kind = made[static_cast<std::size_t>(one.kind)];
    if (of_kind == run.cases || !is_small(one)) continue;
    ++of_kind;
    --left;
    Attempt attempt(world, one, arena, 0);
    attempt.issue({});
    attempt.finish();
  }
}

class ManyRanks : public testing::TestWithParam<int> {};

TEST_P(ManyRanks, EveryOperationAmongThreads) {
  SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(this_run().seed));
  run_thread_ranks(GetParam(), run_every_operation);
}

INSTANTIATE_TEST_SUITE_P(All, ManyRanks, testing::Values(16, 33, 64));

TEST(ManyRanks, EveryOperationAmongProcesses) {
  SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(this_run().seed));
  expect_all_succeeded(run_forked_ranks(16, [](Communicator& world) {
    run_every_operation(world);
    return 0;
  }));
  expect_no_children();
}

/// Calls until the loss of rank 9 is told, which has to name it.
int await_loss(Communicator& world) {
  std::vector<float> data(1000);
  auto const start = std::chrono::steady_clock::now();
  try {
    for (;;) world.all_reduce(std::span(data), std::span(data), ReduceOp::max);
  } catch (Error const& error) {
    if (error.code() != ErrorCode::peer_lost) return 2;
    if (std::string(error.what()).find("rank 9 ") == std::string::npos) return 3;
  }
  return std::chrono::steady_clock::now() - start < kNoticed ? 0 : 4;
}

TEST(ManyRanks, AKilledOneIsNamedByAllOthers) {
  auto const exits = run_forked_ranks(16, [](Communicator& world) {
    if (world.rank() == 9) {
      std::thread([] {
        std::this_thread::sleep_for(200ms);
        ::raise(SIGKILL);
      }).detach();
    }
    return await_loss(world);
  });
  for (std::size_t rank = 0; rank < exits.size(); ++rank) {
    if (rank == 9) {
      EXPECT_EQ(SIGKILL, exits[rank].signal);
    } else {
      EXPECT_EQ(0, exits[rank].code) << "rank " << rank << ": " << exits[rank].output;
    }
  }
  expect_no_children();
}

}  // namespace
}  // namespace weft::test
