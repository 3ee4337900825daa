// The back ends that go through MPI, under mpirun, with hosts that only differ in name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "collectives/cases/random_run.hpp"
#include "harness/shell.hpp"

namespace weft {
namespace {

using test::run_shell;
using test::ShellResult;

struct Setting {
  char const* backend;  ///< "default": by where the ranks are
  char const* hosts;    ///< a letter for every rank
};

/// `mpirun -np RANKS mpi_probe MODE BACKEND HOSTS`, both streams; ended after a minute and a half.
ShellResult mpirun(std::string const& mode, Setting const& setting, std::string const& more = {}) {
  auto const ranks = std::to_string(std::string(setting.hosts).size());
  return run_shell("timeout 90 " WEFT_MPIRUN " --oversubscribe -np " + ranks + " " WEFT_MPI_PROBE " " + mode + " " +
                   setting.backend + " " + setting.hosts + " " + more);
}

/// `cases` random ones, of a seed that is printed where they fail.
void expect_success_of(std::string const& mode, Setting const& setting, std::uint64_t cases) {
  test::RandomRun const run(cases);
  auto const outcome = mpirun(mode, setting, std::to_string(run.cases) + " " + std::to_string(run.seed));
  EXPECT_EQ(0, outcome.code) << mode << ", WEFT_TEST_SEED=" << run.seed << " WEFT_TEST_CASES=" << run.cases << ":\n"
                             << outcome.output;
}

struct MpiBackends : testing::TestWithParam<Setting> {
  static void expect_success(char const* mode) {
    auto const outcome = mpirun(mode, GetParam());
    EXPECT_EQ(0, outcome.code) << mode << ":\n" << outcome.output;
  }
};

TEST_P(MpiBackends, EveryOperationGivesTheBitsOfSharedMemory) {
  expect_success_of("operations", GetParam(), 150);
}
TEST_P(MpiBackends, EveryRankLearnsOfDifferentCalls) {
  expect_success("mismatch");
}
TEST_P(MpiBackends, ALateRankIsNamedAndTold) {
  expect_success("timeout");
}
TEST_P(MpiBackends, AbortReachesEveryRank) {
  expect_success("abort");
}
TEST_P(MpiBackends, ARankThatLeavesIsNamed) {
  expect_success("leave");
}
TEST_P(MpiBackends, WhatARankSentBeforeItLeftArrives) {
  expect_success("send_and_leave");
}
TEST_P(MpiBackends, ManyCommunicatorsAtOnce) {
  expect_success("communicators");
}
TEST_P(MpiBackends, LongBuffersOfElementsThatFillNoCacheLine) {
  expect_success("long_elements");
}
TEST_P(MpiBackends, Messages) {
  expect_success("messages");
}
TEST_P(MpiBackends, AMessenger) {
  expect_success("messenger");
}
TEST_P(MpiBackends, AMessengerWhoseSendersAreGoneOrLate) {
  expect_success("messenger_errors");
}
TEST_P(MpiBackends, AKilledRankHangsNobody) {
  auto const outcome = mpirun("kill", GetParam());
  EXPECT_NE(0, outcome.code);
  EXPECT_NE(124, outcome.code) << "timeout(1) had to end it: " << outcome.output;
}

// Each rank on its own host, uneven and interleaved hosts.
INSTANTIATE_TEST_SUITE_P(Mpi, MpiBackends, testing::Values(Setting{"mpi", "aa"}, Setting{"mpi", "abc"}));
INSTANTIATE_TEST_SUITE_P(Hierarchical, MpiBackends,
                         testing::Values(Setting{"hierarchical", "aab"}, Setting{"hierarchical", "abab"}));
// What MPI's ranks get that say nothing: UCX between hosts, where there is UCX.
INSTANTIATE_TEST_SUITE_P(Default, MpiBackends, testing::Values(Setting{"default", "ab"}, Setting{"default", "aab"}));

/// A rank that stops while data moves, when some have had theirs and wait in the next call.
struct StoppedRanks : testing::TestWithParam<char const*> {};

TEST_P(StoppedRanks, AreNamed) {
  auto const outcome = mpirun(GetParam(), {"mpi", "abc"});
  EXPECT_EQ(0, outcome.code) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(InAGather, StoppedRanks, testing::Values("stop_in_gather_0", "stop_in_gather_1"));

/// The same within a call over two levels, each rank waiting on the level that it is at.
struct RanksStoppedBetweenHosts : testing::TestWithParam<char const*> {};

TEST_P(RanksStoppedBetweenHosts, AreNamed) {
  auto const outcome = mpirun(GetParam(), {"hierarchical", "aabb"});
  EXPECT_EQ(0, outcome.code) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(InABroadcast, RanksStoppedBetweenHosts,
                         testing::Values("stop_between_hosts_0", "stop_between_hosts_1", "stop_between_hosts_2"));

struct Placements : testing::TestWithParam<Setting> {};

TEST_P(Placements, EveryOperationGivesTheBitsOfSharedMemory) {
  expect_success_of("operations", GetParam(), 150);
}

TEST_P(Placements, SumsInRankOrder) {
  auto const outcome = mpirun("bitwise", GetParam());
  EXPECT_EQ(0, outcome.code) << outcome.output;
}

TEST_P(Placements, ByDefaultNearlyAndAlwaysTheSame) {
  auto const outcome = mpirun("relaxed", GetParam());
  EXPECT_EQ(0, outcome.code) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, Placements,
                         testing::Values(Setting{"mpi", "aabb"}, Setting{"hierarchical", "aabb"},
                                         Setting{"hierarchical", "abbb"}, Setting{"hierarchical", "aaa"},
                                         Setting{"hierarchical", "ab"}, Setting{"hierarchical", "aabbc"},
                                         Setting{"hierarchical", "abcab"}, Setting{"default", "aabb"}));

TEST(MpiMessages, AFailureOfOneLevelEndsThoseOfTheOther) {
  auto const outcome = mpirun("lost_messages", {"hierarchical", "aab"});
  EXPECT_EQ(0, outcome.code) << outcome.output;
}

TEST(MpiStartUp, WhatComesTooLateIsWrittenToNobodysMemory) {
  auto const outcome = mpirun("late_to_mpi", {"mpi", "aaa"});
  EXPECT_EQ(0, outcome.code) << outcome.output;
}

/// Every back end against MPI's own functions.
struct Differential : testing::TestWithParam<Setting> {};

TEST_P(Differential, EveryOperationGivesTheResultsOfMpi) {
  expect_success_of("differential", GetParam(), 400);
}

INSTANTIATE_TEST_SUITE_P(All, Differential,
                         testing::Values(Setting{"shm", "aa"}, Setting{"shm", "aaa"}, Setting{"shm", "aaaa"},
                                         Setting{"mpi", "aaa"}, Setting{"hierarchical", "aba"},
                                         Setting{"hierarchical", "abba"}, Setting{"default", "aba"}));

/// More ranks than cores, and other programs besides.
TEST(MpiCrowd, AWaitGivesWayToProgramsThatComputeAndComesBack) {
  for (auto const& setting : {Setting{"mpi", "aaaa"}, Setting{"hierarchical", "aaab"}}) {
    auto const outcome = mpirun("crowded", setting);
    EXPECT_EQ(0, outcome.code) << setting.backend << ": " << outcome.output;
  }
}

TEST(MpiSelection, SharedMemoryIsRefusedAcrossHosts) {
  auto const outcome = mpirun("refuse", {"default", "ab"});
  EXPECT_EQ(0, outcome.code) << outcome.output;
}

TEST(MpiSelection, MoreRanksThanCanShareMemoryCountAsSeveralHosts) {
  auto const outcome = run_shell("WEFT_EXPLAIN=1 timeout 90 " WEFT_MPIRUN " --oversubscribe -np 66 " WEFT_MPI_PROBE
                                 " differential default " +
                                 std::string(66, 'a') + " 3 1");
  EXPECT_EQ(0, outcome.code) << outcome.output;
  EXPECT_THAT(outcome.output, testing::HasSubstr("hierarchical, 66 ranks: "));
  EXPECT_THAT(outcome.output, testing::HasSubstr("shm, 33 ranks: "));
}

/// Between hosts, with `variables` in the environment of every rank.
ShellResult explained(std::string const& variables) {
  return run_shell("WEFT_EXPLAIN=1 " + variables +
                   " timeout 90 " WEFT_MPIRUN " --oversubscribe -np 3 " WEFT_MPI_PROBE " operations default aab 20 1");
}

#if WEFT_WITH_UCX
TEST(MpiSelection, UcxCarriesWhatCrossesHosts) {
  auto const outcome = explained("");
  EXPECT_EQ(0, outcome.code) << outcome.output;
  EXPECT_THAT(outcome.output, testing::HasSubstr("[explain] UCX carries what crosses hosts"));
  EXPECT_THAT(outcome.output, testing::HasSubstr("hierarchical, 3 ranks: all_reduce"));
}

TEST(MpiSelection, WhereUcxIsNotToBeHadMpiDoes) {
  auto const outcome = explained("UCX_TLS=nothing");
  EXPECT_EQ(0, outcome.code) << outcome.output;
  EXPECT_THAT(outcome.output,
              testing::HasSubstr("[explain] MPI carries what crosses hosts: rank 0: UCX finds nothing"));
  EXPECT_THAT(outcome.output, testing::HasSubstr("look at UCX_TLS"));
}
#endif

}  // namespace
}  // namespace weft
