#include "weft/launch.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/topology.hpp"
#include "harness/ranks.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;
using test::RankExit;

using Body = std::function<int(Communicator&)>;

void expect_contains(std::string const& text, std::string const& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\ndoes not contain\n" << part;
}

std::size_t count_of(std::string const& text, std::string const& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Inside run_forked(), whose processes write to one file: returns once some of them has written `part`.
void await_output(std::string const& part) {
  std::string text(1 << 16, '\0');
  while (pread(STDERR_FILENO, text.data(), text.size(), 0) < 0 || text.find(part) == std::string::npos) {
    std::this_thread::sleep_for(10ms);
  }
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  if (DIR* const folder = opendir("/dev/shm")) {
    while (dirent const* const entry = readdir(folder)) {
      if (std::string(entry->d_name).find("weft") != std::string::npos) names.insert(entry->d_name);
    }
    closedir(folder);
  }
  return names;
}

/// Zero-filled memory that forked processes share.
template <typename T>
class Shared {
 public:
  Shared()
      : value_(static_cast<T*>(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  Shared(Shared const&) = delete;
  Shared& operator=(Shared const&) = delete;
  ~Shared() { munmap(value_, sizeof(T)); }
  [[nodiscard]] T* operator->() const noexcept { return value_; }

 private:
  T* value_;
};

/// launch() in a process of its own, whose exit code is launch()'s result; orphans of that process come back to the
/// test.
class Launch : public testing::Test {
 protected:
  void SetUp() override { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  void TearDown() override {
    test::expect_no_children();
    EXPECT_TRUE(shared_memory_files().empty());
  }

  static RankExit run(int ranks, Body const& body) {
    auto const program = [&](int) {
      LaunchOptions options;
      options.ranks = ranks;
      options.communicator.config.emplace().timeout = 20s;
      return launch(options, body);
    };
    return test::run_forked(1, program)[0];
  }
};

TEST_F(Launch, RunsTheBodyOncePerRank) {
  for (int const ranks : {1, 2, 5}) {
    RankExit const exit = run(ranks, [](Communicator& world) {
      std::printf("rank %d of %d\n", world.rank(), world.size());
      world.barrier();
      return 0;
    });
    EXPECT_EQ(exit.code, 0) << exit.output;
    for (int rank = 0; rank < ranks; ++rank) {
      std::string const line = "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + "\n";
      EXPECT_EQ(count_of(exit.output, line), 1U) << exit.output;
    }
  }
}

TEST_F(Launch, WritesWhatWasBufferedBeforeOnce) {
  auto const exits = test::run_forked(1, [](int) {
    std::printf("before, without a newline;");
    LaunchOptions options;
    options.ranks = 3;
    return launch(options, [](Communicator&) { return 0; });
  });
  EXPECT_EQ(exits[0].output, "before, without a newline;");
}

TEST_F(Launch, RefusesWrongRankCounts) {
  for (int const ranks : {0, -1, kMostLocalRanks + 1}) {
    RankExit const exit = run(ranks, [](Communicator&) { return 0; });
    EXPECT_EQ(exit.code, 2);
    EXPECT_EQ(exit.output, "weft: " + std::to_string(ranks) + " ranks were asked for: expected 1 to 64\n");
  }
}

TEST_F(Launch, RefusesToRunNothing) {
  RankExit const exit = run(2, nullptr);
  EXPECT_EQ(exit.code, 2);
  EXPECT_EQ(exit.output, "weft: launch: body is null\n");
}

TEST_F(Launch, ABodyMayCloseDescriptorsThatItDidNotOpen) {
  RankExit const exit = run(2, [](Communicator& world) {
    close_range(3, ~0U, 0);
    world.barrier();
    return 0;
  });
  EXPECT_EQ(exit.code, 0) << exit.output;
}

TEST_F(Launch, ARankThatThrowsEndsAllWithItsLine) {
  RankExit const exit = run(3, [](Communicator& world) {
    world.barrier();
    if (world.rank() == 1) throw std::runtime_error("the data file is empty");
    world.barrier();
    return 0;
  });
  EXPECT_EQ(exit.code, 1);
  EXPECT_EQ(count_of(exit.output, "weft: rank 1: the data file is empty\n"), 1U) << exit.output;
  EXPECT_EQ(count_of(exit.output, ": rank 1 left "), 1U) << exit.output;  // one of the others speaks for both
  EXPECT_EQ(count_of(exit.output, "\n"), 2U) << exit.output;              // nor did the grace have to end one
}

TEST_F(Launch, TheResultIsTheCausesCode) {
  RankExit const exit = run(3, [](Communicator& world) {
    if (world.rank() == 2) return 7;
    world.barrier();
    return 0;
  });
  EXPECT_EQ(exit.code, 7) << exit.output;
  expect_contains(exit.output, "weft: rank 2: returned 7\n");
}

TEST_F(Launch, AKilledRankIsNamedWithItsSignal) {
  RankExit const exit = run(4, [](Communicator& world) {
    world.barrier();
    if (world.rank() == 0) kill(getpid(), SIGKILL);
    world.barrier();
    return 0;
  });
  EXPECT_EQ(exit.code, 128 + SIGKILL) << exit.output;
  EXPECT_EQ(count_of(exit.output, "weft: rank 0: killed by signal 9 (Killed), by somebody or for want of memory"), 1U);
  EXPECT_EQ(count_of(exit.output, ": rank 0 (pid "), 1U) << exit.output;
  EXPECT_EQ(count_of(exit.output, "\n"), 2U) << exit.output;
}

TEST_F(Launch, WhatEveryRankSaysIsSaidOnce) {
  RankExit const same = run(4, [](Communicator&) -> int { throw std::runtime_error("no such device"); });
  EXPECT_EQ(same.code, 1);
  EXPECT_EQ(count_of(same.output, ": no such device\n"), 1U) << same.output;
  EXPECT_EQ(count_of(same.output, "\n"), 1U) << same.output;

  RankExit const returned = run(4, [](Communicator&) { return 3; });
  EXPECT_EQ(count_of(returned.output, ": returned 3\n"), 1U) << returned.output;
  EXPECT_EQ(count_of(returned.output, "\n"), 1U) << returned.output;

  RankExit const named = run(4, [](Communicator& world) -> int {
    throw std::runtime_error("rank " + std::to_string(world.rank()) + " of replicas: no such device");
  });
  EXPECT_EQ(count_of(named.output, " of replicas: no such device\n"), 1U) << named.output;
  EXPECT_EQ(count_of(named.output, "\n"), 1U) << named.output;
  EXPECT_EQ(count_of(named.output, "rank "), 1U) << named.output;

  RankExit const different = run(4, [](Communicator& world) -> int {
    throw std::runtime_error("disk " + std::to_string(world.rank()) + " full");
  });
  EXPECT_EQ(count_of(different.output, "\n"), 4U) << different.output;
}

TEST_F(Launch, NamesARankOnceAndExitsWithTheUsagesCode) {
  RankExit const exit = run(3, [](Communicator& world) {
    std::vector<float> values(10);
    world.broadcast(std::span<float>(values), 7);  // every rank's message begins with its own number
    return 0;
  });
  EXPECT_EQ(exit.code, 2) << exit.output;
  EXPECT_EQ(count_of(exit.output, "\n"), 1U) << exit.output;
  EXPECT_EQ(count_of(exit.output, "rank 0: ") + count_of(exit.output, "rank 1: ") + count_of(exit.output, "rank 2: "),
            1U)
      << exit.output;
}

TEST_F(Launch, ABodyThatCallsExitIsNamed) {
  RankExit const exit = run(2, [](Communicator& world) -> int {
    if (world.rank() == 1) _exit(5);
    return 0;
  });
  EXPECT_EQ(exit.code, 5) << exit.output;
  expect_contains(exit.output, "weft: rank 1: exited with code 5 before its body returned\n");
}

TEST_F(Launch, ABodyThatLeavesAsIfItHadSucceededIsAFailure) {
  RankExit const exit = run(2, [](Communicator& world) -> int {
    if (world.rank() == 1) _exit(0);
    return 0;
  });
  EXPECT_EQ(exit.code, 1) << exit.output;
  expect_contains(exit.output, "weft: rank 1: exited with code 0 before its body returned\n");
}

TEST_F(Launch, ACodeThatTheSystemCutsToZeroIsAFailure) {
  RankExit const exit = run(2, [](Communicator& world) { return world.rank() == 1 ? 256 : 0; });
  EXPECT_EQ(exit.code, 1) << exit.output;
  expect_contains(exit.output, "weft: rank 1: returned 256\n");
}

TEST_F(Launch, ARankThatNeverNoticesIsKilledAfterTheGrace) {
  RankExit const exit = run(2, [](Communicator& world) {
    if (world.rank() == 0) return 3;
    std::this_thread::sleep_for(60s);
    return 0;
  });
  EXPECT_EQ(exit.code, 3) << exit.output;
  EXPECT_GE(exit.elapsed, 4900ms);
  EXPECT_LT(exit.elapsed, test::kNoticed);
  expect_contains(exit.output, "weft: ranks still running");
}

TEST_F(Launch, AStoppedRankIsNamedAndMayGoOn) {
  RankExit const exit = run(2, [](Communicator& world) {
    if (world.rank() == 1) {
      raise(SIGSTOP);
    } else {
      await_output("stopped");  // the parent has seen it
      int peer = 0;             // the parent forked it right after this rank
      std::ifstream children("/proc/" + std::to_string(getppid()) + "/task/" + std::to_string(getppid()) + "/children");
      while (children >> peer && peer == getpid()) {
      }
      kill(peer, SIGCONT);
    }
    world.barrier();
    return 0;
  });
  EXPECT_EQ(exit.code, 0) << exit.output;
  expect_contains(exit.output, "weft: rank 1 was stopped (SIGSTOP), and the job waits for it: kill -CONT ");
  EXPECT_EQ(count_of(exit.output, "stopped"), 1U) << exit.output;
}

TEST_F(Launch, SignalsReachEveryRank) {
  for (int const signal : {SIGTERM, SIGINT}) {
    RankExit const exit = run(3, [signal](Communicator& world) {
      world.barrier();
      if (world.rank() == 0) kill(getppid(), signal);
      std::this_thread::sleep_for(60s);
      return 0;
    });
    EXPECT_EQ(exit.code, 128 + signal) << exit.output;
    EXPECT_LT(exit.elapsed, test::kNoticed);
    EXPECT_EQ(exit.output, "");  // no word of ranks that did not end
  }
}

std::atomic<int> interrupts = 0;
std::atomic<int> user_signals = 0;

TEST_F(Launch, CtrlCReachesEveryRankOnce) {
  auto const exits = test::run_forked(1, [](int) {
    int const terminal = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_EQ(grantpt(terminal), 0);
    EXPECT_EQ(unlockpt(terminal), 0);
    EXPECT_EQ(setsid(), getpid());
    EXPECT_GE(open(ptsname(terminal), O_RDWR), 0);  // from now on this session's
    LaunchOptions options;
    options.ranks = 3;
    return launch(options, [&](Communicator& world) {
      signal(SIGINT, [](int) { ++interrupts; });
      signal(SIGUSR2, [](int) { ++user_signals; });
      world.barrier();
      auto const sent = world.rank() == 0 ? write(terminal, "\x03", 1) : 1;
      EXPECT_EQ(sent, 1);
      while (interrupts == 0) std::this_thread::sleep_for(1ms);
      world.barrier();
      // The parent passes this one on after what it had before.
      if (world.rank() == 0) kill(getppid(), SIGUSR2);
      while (user_signals == 0) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(interrupts, 1);
      return 0;
    });
  });
  EXPECT_EQ(exits[0].code, 128 + SIGINT) << exits[0].output;
  EXPECT_EQ(exits[0].output, "");
}

TEST_F(Launch, RanksDieWithTheirParent) {
  struct Pids {
    std::array<std::atomic<pid_t>, 3> pids;
  };
  Shared<Pids> shared;
  RankExit const exit = run(3, [&](Communicator& world) {
    shared->pids[static_cast<std::size_t>(world.rank())] = getpid();
    world.barrier();
    if (world.rank() == 0) kill(getppid(), SIGKILL);
    std::this_thread::sleep_for(60s);
    return 0;
  });
  EXPECT_EQ(exit.signal, SIGKILL);
  for (auto const& pid : shared->pids) {  // orphans come to this process, which reaps them
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
}

TEST_F(Launch, BindsRanksToTheirShares) {
  std::vector<int> const cpus = discover_topology().cpus;
  RankExit const exit = run(2, [&](Communicator& world) {
    EXPECT_EQ(discover_topology().cpus, share_of_cpus(cpus, world.rank(), 2));
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(exit.code, 0) << exit.output;
}

TEST_F(Launch, LeavesRanksUnboundWhenTold) {
  std::vector<int> const cpus = discover_topology().cpus;
  auto const exits = test::run_forked(1, [&](int) {
    LaunchOptions options;
    options.ranks = 2;
    options.communicator.config.emplace().bind = false;
    return launch(options, [&](Communicator&) { return discover_topology().cpus == cpus ? 0 : 1; });
  });
  EXPECT_EQ(exits[0].code, 0) << exits[0].output;
}

TEST_F(Launch, JoinsTorchrunsRanks) {
  std::string const id = "launch-test-" + std::to_string(getpid());
  auto const exits = test::run_forked(3, [&](int rank) {
    for (char const* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) setenv(name, "3", 1);
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("MASTER_PORT", "29500", 1);
    setenv("TORCHELASTIC_RUN_ID", id.c_str(), 1);
    return launch({}, [rank](Communicator& world) {
      EXPECT_EQ(world.rank(), rank);
      EXPECT_EQ(world.size(), 3);
      world.barrier();
      return 0;
    });
  });
  test::expect_all_succeeded(exits);
}

TEST_F(Launch, RefusesAnotherCountThanTorchruns) {
  auto const exits = test::run_forked(1, [&](int) {
    for (char const* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) setenv(name, "1", 1);
    setenv("RANK", "0", 1);
    setenv("MASTER_PORT", "29500", 1);
    LaunchOptions options;
    options.ranks = 4;
    return launch(options, [](Communicator&) { return 0; });
  });
  EXPECT_EQ(exits[0].code, 2);
  expect_contains(exits[0].output, "weft: 4 ranks were asked for, but torchrun started 1");
}

}  // namespace
}  // namespace weft
