#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <thread>

#include "harness/ranks.hpp"
#include "harness/tally.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

/// Survivors call all_reduce until it fails; 0 when the failure is of `code`, came long before a time limit and names
/// `words`.
int expect_failure(Communicator& world, ErrorCode code, std::vector<std::string> const& words, std::size_t count) {
  auto buffer = Buffer::host(count, DataType::f32);
  auto const start = std::chrono::steady_clock::now();
  for (int attempt = 0; attempt < 2; ++attempt) {  // pending and later calls
    try {
      for (;;) world.all_reduce(buffer.view(), buffer.view(), ReduceOp::sum);
    } catch (Error const& error) {
      std::string const what = error.what();
      std::fprintf(stderr, "%s\n", error.what());
      if (error.code() != code) return 2;
      for (auto const& word : words) {
        if (what.find(word) == std::string::npos) return 3;
      }
    }
  }
  return std::chrono::steady_clock::now() - start < kNoticed ? 0 : 4;
}

class Killed : public testing::TestWithParam<std::size_t> {};

TEST_P(Killed, RankIsNamedByEverySurvivor) {
  auto const exits = run_forked_ranks(3, [](Communicator& world) {
    if (world.rank() == 1) {
      // In the middle of a stream of calls, from another thread, as the kernel's out-of-memory killer would.
      std::thread([] {
        std::this_thread::sleep_for(200ms);
        ::raise(SIGKILL);
      }).detach();
    }
    return expect_failure(world, ErrorCode::peer_lost, {"rank 1", "all_reduce", "died"}, GetParam());
  });
  EXPECT_EQ(SIGKILL, exits[1].signal);
  for (int const rank : {0, 2})
    EXPECT_EQ(0, exits[static_cast<std::size_t>(rank)].code) << exits[static_cast<std::size_t>(rank)].output;
  expect_no_children();
}

INSTANTIATE_TEST_SUITE_P(Counts, Killed, testing::Values(1, 10'000, 1'000'000));

TEST(Fault, RankThatDiesWhileItsPrivateMemoryIsReachedIsNamed) {
  auto const exits = run_forked_ranks(2, [](Communicator& world) {
    std::vector<float> a(4 << 20);
    if (world.rank() == 1) {
      std::thread([] {
        std::this_thread::sleep_for(200ms);
        ::raise(SIGKILL);
      }).detach();
    }
    try {
      for (;;) world.broadcast(std::span(a), 1);
    } catch (Error const& error) {
      std::string const what = error.what();
      std::fprintf(stderr, "%s\n", error.what());
      return error.code() == ErrorCode::peer_lost && what.find("rank 1") != std::string::npos ? 0 : 1;
    }
  });
  EXPECT_EQ(SIGKILL, exits[1].signal);
  EXPECT_EQ(0, exits[0].code) << exits[0].output;
}

TEST(Fault, RankThatLeavesIsNamed) {
  auto const exits = run_forked_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) return 0;
    return expect_failure(world, ErrorCode::peer_lost, {"rank 1", "left"}, 100);
  });
  expect_all_succeeded(exits);
}

TEST(Fault, LeavingAfterTheLastCommonCallIsNoFailure) {
  for (int round = 0; round < 20; ++round) {
    run_thread_ranks(3, [](Communicator& world) {
      std::vector<float> a(30'000, 1.0F);
      world.all_reduce(std::span(a), std::span(a), ReduceOp::sum);
      if (world.rank() == 0) std::this_thread::sleep_for(2ms);
      EXPECT_EQ(3.0F, a[0]);
    });
  }
}

TEST(Fault, ThrowingRankIsNamedToTheOthers) {
  run_thread_ranks(3, [](Communicator& world) {
    if (world.rank() == 2) return;  // unwinds its communicator
    EXPECT_EQ(0, expect_failure(world, ErrorCode::peer_lost, {"rank 2", "left"}, 1000));
  });
}

TEST(Fault, RankWithFewerCallsTimesOut) {
  Tally gave_up;
  auto const exits = run_forked_ranks(2, [&](Communicator& world) {
    std::vector<float> a(10);
    if (world.rank() == 1) {
      gave_up.await(1);
      return 0;
    }
    try {
      world.all_reduce(std::span(a), std::span(a), ReduceOp::sum, {.timeout = 300ms});
      return 1;
    } catch (Error const& error) {
      gave_up.add();
      std::string const what = error.what();
      return error.code() == ErrorCode::timeout && what.find("rank 1") != std::string::npos &&
                     what.find("0 collective calls") != std::string::npos
                 ? 0
                 : 2;
    }
  });
  expect_all_succeeded(exits);
}

// Rank 2 gives and waits in the next call for both others, of whom rank 0 waits for rank 1 itself.
TEST(Fault, ARankThatWaitsIsNotBlamedForOneThatIsLate) {
  Tally gave_up;
  auto const exits = run_forked_ranks(3, [&](Communicator& world) {
    constexpr std::size_t kCount = 5000;
    std::vector<float> const part(kCount);
    std::vector<float> all(world.rank() == 0 ? 3 * kCount : 0);
    world.barrier();
    if (world.rank() == 1) {
      gave_up.await(2);
      return 0;
    }
    try {
      world.gather(std::span(part), std::span(all), 0);
      world.barrier({.timeout = 600ms});
      return 1;
    } catch (Error const& error) {
      gave_up.add();
      std::printf("%s\n", error.what());
      return error.code() == ErrorCode::timeout &&
                     std::string_view(error.what()).starts_with("rank 1 did not complete barrier(), call 3 (it made 1")
                 ? 0
                 : 2;
    }
  });
  expect_all_succeeded(exits);
}

TEST(Fault, AbortReachesEveryRank) {
  run_thread_ranks(3, [](Communicator& world) {
    if (world.rank() == 0) {
      std::this_thread::sleep_for(50ms);
      world.abort("operator\npressed stop");
    }
    std::vector<float> a(10);
    try {
      world.barrier();
      world.all_reduce(std::span(a), std::span(a), ReduceOp::sum);
      ADD_FAILURE();
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::aborted, error.code());
      auto const own = "operator pressed stop; rank " + std::to_string(world.rank()) + " was in ";
      EXPECT_NE(std::string::npos, std::string(error.what()).find(own)) << error.what();
    }
  });
}

TEST(Fault, NothingIsLeftInSharedMemory) {
  auto const count = [] {  // other programs of this machine may leave theirs meanwhile
    std::filesystem::directory_iterator const files("/dev/shm");
    return std::count_if(begin(files), end(files), [](auto const& file) {
      return file.path().filename().string().find("weft") != std::string::npos;
    });
  };
  auto const before = count();
  static_cast<void>(run_forked_ranks(2, [](Communicator& world) {
    auto buffer = world.allocate(1 << 20, DataType::f32);
    ::raise(SIGKILL);
    return 0;
  }));
  EXPECT_EQ(before, count());
  expect_no_children();
}

}  // namespace
}  // namespace weft::test
