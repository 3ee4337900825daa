#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "collectives/outcome.hpp"
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

/// Leaves the ranks that are forked meanwhile one core, which they share.
class OneCore {
 public:
  OneCore() {
    ::sched_getaffinity(0, sizeof before_, &before_);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before_)) ++cpu;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(OneCore const&) = delete;
  OneCore& operator=(OneCore const&) = delete;

 private:
  cpu_set_t before_{};
};

/// A sum in whose middle a rank does `context`, a function.
void interrupted_sum(void* sum, void const* next, std::size_t count, void* context) {
  (*static_cast<std::function<void()> const*>(context))();
  for (std::size_t i = 0; i < count; ++i) static_cast<float*>(sum)[i] += static_cast<float const*>(next)[i];
}

// Ranks that share cores take one another's chunks, and do not know who took the one that is not done.
TEST(Fault, ARankThatDiesInAChunkOfItsOwnIsNamedByAll) {
  Tally doomed;
  OneCore const shared;
  auto const exits = run_forked_ranks(3, [&](Communicator& world) {
    std::function<void()> meanwhile = [&] {
      if (world.rank() == 2) {
        doomed.add();
        ::raise(SIGKILL);
      }
      doomed.await(1);
    };
    auto const how = Reduction::user(interrupted_sum, &meanwhile);
    std::vector<float> a(1 << 18);
    try {
      world.all_reduce(std::span(a), std::span(a), how, {.timeout = kNoticed});
      return 1;
    } catch (Error const& error) {
      std::string const what = error.what();
      std::fprintf(stderr, "%s\n", error.what());
      return error.code() == ErrorCode::peer_lost && what.starts_with("rank 2 ") ? 0 : 2;
    }
  });
  EXPECT_EQ(SIGKILL, exits[2].signal);
  for (std::size_t const rank : {0, 1}) EXPECT_EQ(0, exits[rank].code) << exits[rank].output;
}

TEST(Fault, ARankThatIsStuckInAChunkOfItsOwnIsNamedByAll) {
  Tally stuck;
  Tally gave_up;
  OneCore const shared;
  auto const exits = run_forked_ranks(4, [&](Communicator& world) {
    std::function<void()> meanwhile = [&] {
      if (world.rank() == 2) {
        stuck.add();
        gave_up.await(3);
      }
      stuck.await(1);
    };
    std::vector<float> a(1 << 18);
    try {
      world.all_reduce(std::span(a), std::span(a), Reduction::user(interrupted_sum, &meanwhile),
                       {.timeout = kImpatience});
      return 1;
    } catch (Error const& error) {
      gave_up.add();
      std::fprintf(stderr, "%s\n", error.what());
      return error.code() == ErrorCode::timeout && std::string_view(error.what()).starts_with("rank 2 ") ? 0 : 2;
    }
  });
  expect_all_succeeded(exits);
}

TEST(Fault, RootThatDiesInLongBroadcastsIsNamed) {
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
      world.barrier({.timeout = kImpatience});
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

/// Whether it ends in the middle of one of its characters, as Python refuses to read it.
bool ends_within_a_character(std::string const& text) {
  auto const last = text.find_last_of('\xe2');  // where an ellipsis begins, which has three bytes
  return last != std::string::npos && text.size() - last < 3;
}

TEST(Fault, ALongReasonIsCutBetweenCharacters) {
  for (std::size_t before = 0; before < 3; ++before) {
    std::string reason(before, '-');
    for (int i = 0; i < 500; ++i) reason += "…";
    run_thread_ranks(2, [&](Communicator& world) {
      world.abort(reason);
      try {
        world.barrier();
        ADD_FAILURE();
      } catch (Error const& error) {
        std::string const what = error.what();
        auto const end = what.find("; rank");
        ASSERT_NE(std::string::npos, end) << what;
        EXPECT_FALSE(ends_within_a_character(what.substr(0, end))) << what;
      }
      auto const outcome = Outcome::of(Error(ErrorCode::aborted, reason));
      EXPECT_FALSE(ends_within_a_character(outcome.why));
    });
  }
}

// Rank 0 may use its buffer again once its call has failed, while rank 1 still reads there.
TEST(Fault, ACallThatReadsFromARankWhoseCallHasFailedFailsToo) {
  Tally reading;
  Tally failed;
  auto const body = [&](Communicator& world) {
    constexpr std::size_t kCount = 1 << 20;
    auto const send = world.allocate(2 * kCount, DataType::f32);
    auto const recv = world.allocate(kCount, DataType::f32);
    std::thread stopping([&] {
      if (world.rank() != 0) return;
      reading.await(1);
      world.abort("enough");
    });
    std::function<void()> meanwhile = [&] {
      if (world.rank() != 1) return;
      reading.add();
      failed.await(1);
    };
    try {
      world.reduce_scatter(send.view(), recv.view(), Reduction::user(interrupted_sum, &meanwhile));
      ADD_FAILURE() << "rank " << world.rank();
    } catch (Error const& error) {
      EXPECT_EQ(ErrorCode::aborted, error.code()) << error.what();
    }
    if (world.rank() == 0) failed.add();
    stopping.join();
  };
  // What was measured of this machine does not matter.
  run_thread_ranks(2, body, {.config = Config{}});
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
