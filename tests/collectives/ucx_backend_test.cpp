// The back ends that go through UCX, between ranks that nothing but torchrun's variables brings together, with hosts
// that only differ in name.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdint>
#include <string>

#include "collectives/cases/random_run.hpp"
#include "harness/sanitizers.hpp"
#include "harness/shell.hpp"

namespace weft {
namespace {

using test::run_shell;
using test::ShellResult;
using test::unless_sanitized;

struct Setting {
  char const* backend;  ///< "default": by where the ranks are
  char const* hosts;    ///< a letter for every rank
  char const* transports = "";
};

constexpr char const* kOverTcp = "UCX_TLS=tcp,self UCX_NET_DEVICES=lo ";

/// `mpi_probe MODE BACKEND HOSTS` for every rank, each ended after a minute and a half. The exit code is 0 where all of
/// theirs are; `killed`: the last rank's has to be SIGKILL's.
ShellResult start_ranks(std::string const& mode, Setting const& setting, std::string const& more = {},
                        bool killed = false) {
  auto const ranks = std::to_string(std::string(setting.hosts).size());
  // Ranks meet at a name made of these, so that tests may run side by side.
  auto const job = "MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 TORCHELASTIC_RUN_ID=ucx_test_" + std::to_string(getpid());
  return run_shell(
      "(unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_SIZE; n=" + ranks + "; pids=; for rank in $(seq 0 $((n - 1))); do " +
      job + " RANK=$rank WORLD_SIZE=$n LOCAL_WORLD_SIZE=$n " + setting.transports + "timeout 180 " WEFT_MPI_PROBE " " +
      mode + " " + setting.backend + " " + setting.hosts + " " + more +
      " & pids=\"$pids $!\"; done; rank=0; failed=0; for pid in $pids; do rank=$((rank + 1)); wait $pid; " +
      "code=$?; wanted=0; [ $rank -lt $n ] || wanted=" + (killed ? "137" : "0") +
      "; [ $code -eq $wanted ] || failed=1; done; exit $failed)");
}

void expect_success(std::string const& mode, Setting const& setting, std::string const& more = {},
                    bool killed = false) {
  auto const outcome = start_ranks(mode, setting, more, killed);
  EXPECT_EQ(0, outcome.code) << mode << ":\n" << outcome.output;
  // UCX writes there what goes wrong in it, also where nothing came of it.
  EXPECT_EQ(std::string::npos, outcome.output.find("UCX  ")) << mode << ":\n" << outcome.output;
}

/// `cases` random ones, of a seed that is printed where they fail.
void expect_success_of(std::string const& mode, Setting const& setting, std::uint64_t cases) {
  test::RandomRun const run(cases);
  SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(run.seed) + " WEFT_TEST_CASES=" + std::to_string(run.cases));
  expect_success(mode, setting, std::to_string(run.cases) + " " + std::to_string(run.seed));
}

struct UcxBackends : testing::TestWithParam<Setting> {};

TEST_P(UcxBackends, EveryOperationGivesTheBitsOfSharedMemory) {
  expect_success_of("operations", GetParam(), unless_sanitized(150, 40));
}
TEST_P(UcxBackends, EveryRankLearnsOfDifferentCalls) {
  expect_success("mismatch", GetParam());
}
TEST_P(UcxBackends, AbortReachesEveryRank) {
  expect_success("abort", GetParam());
}
TEST_P(UcxBackends, ARankThatLeavesIsNamed) {
  expect_success("leave", GetParam());
}
TEST_P(UcxBackends, AKilledRankIsNamedByAll) {
  constexpr bool kKilled = true;
  expect_success("lose", GetParam(), {}, kKilled);
}
TEST_P(UcxBackends, Messages) {
  expect_success("messages", GetParam());
}

// Each rank on its own host, uneven and interleaved hosts.
INSTANTIATE_TEST_SUITE_P(Ucx, UcxBackends,
                         testing::Values(Setting{"ucx", "aa", kOverTcp}, Setting{"default", "abc", kOverTcp}));
INSTANTIATE_TEST_SUITE_P(Hierarchical, UcxBackends,
                         testing::Values(Setting{"default", "aab"}, Setting{"hierarchical_ucx", "abab", kOverTcp}));

/// What takes seconds: waits that end by their time limit, and many messages.
struct UcxWaits : testing::TestWithParam<Setting> {};

TEST_P(UcxWaits, ALateRankIsNamedAndTold) {
  expect_success("timeout", GetParam());
}
TEST_P(UcxWaits, AStoppedRankIsNamedByAll) {
  expect_success("stop", GetParam());
}
TEST_P(UcxWaits, AMessenger) {
  expect_success("messenger", GetParam());
}
TEST_P(UcxWaits, AMessengerWhoseSendersAreGoneOrLate) {
  expect_success("messenger_errors", GetParam());
}

INSTANTIATE_TEST_SUITE_P(Some, UcxWaits,
                         testing::Values(Setting{"default", "abc", kOverTcp}, Setting{"default", "aab"}));

/// The same bits on one host, on two and on four, of hosts that lie together and of others.
struct UcxPlacements : testing::TestWithParam<Setting> {};

TEST_P(UcxPlacements, EveryOperationGivesTheBitsOfSharedMemory) {
  expect_success_of("operations", GetParam(), unless_sanitized(100, 30));
}
TEST_P(UcxPlacements, SumsInRankOrder) {
  expect_success("bitwise", GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, UcxPlacements,
                         testing::Values(Setting{"ucx", "aaaa"}, Setting{"hierarchical_ucx", "aaaa", kOverTcp},
                                         Setting{"default", "aabb", kOverTcp}, Setting{"default", "abcd", kOverTcp},
                                         Setting{"hierarchical_ucx", "abcab"}));

TEST(UcxBackend, ByDefaultNearlyAndAlwaysTheSame) {
  expect_success_of("relaxed", {"default", "aab"}, unless_sanitized(12, 6));
}

TEST(UcxBackend, WhatCrossesHostsMayBeRounded) {
  expect_success("wire", {"default", "aabb", kOverTcp});
  expect_success("wire", {"default", "aba"});
  expect_success("wire", {"default", "ab", kOverTcp});
}

TEST(UcxBackend, LongSumsHaveTheBitsOfTheirPieces) {
  for (auto const* hosts : {"aabb", "abab", "aabbcc", "abcabc", "aabbccdd", "aab", "aaabbc"}) {
    SCOPED_TRACE(hosts);
    expect_success("long_sums", {"default", hosts, kOverTcp});
  }
}

TEST(UcxBackend, LongPartsOfSymmetricMemoryAreWrittenWhereTheyBelong) {
  for (auto const& setting : {Setting{"ucx", "ab", kOverTcp}, Setting{"ucx", "abc", kOverTcp}, Setting{"ucx", "aaa"}}) {
    auto const outcome = start_ranks(
        "long_parts",
        {setting.backend, setting.hosts, (std::string(setting.transports) + "WEFT_RMA=1 WEFT_EXPLAIN=1 ").c_str()});
    EXPECT_EQ(0, outcome.code) << outcome.output;
    for (auto const* operation : {"all_gather", "all_to_all", "gather", "scatter"}) {
      EXPECT_NE(std::string::npos, outcome.output.find(std::string(operation) + ", any memory: puts; "))
          << operation << ":\n"
          << outcome.output;
    }
  }
}

TEST(UcxBackend, LongPartsCrossHostsBlockByBlock) {
  for (auto const* hosts : {"aab", "abab", "aabbbc"}) {
    SCOPED_TRACE(hosts);
    expect_success("long_parts", {"hierarchical_ucx", hosts, kOverTcp});
  }
}

TEST(UcxBackend, WhatARankSentBeforeItLeftArrives) {
  expect_success("send_and_leave", {"ucx", "aa", kOverTcp});
}

TEST(UcxBackend, ARefusedMessageTakesNoMemory) {
  expect_success("refuse_long_message", {"ucx", "aa", kOverTcp});
  expect_success("refuse_long_message", {"ucx", "aa"});
}

TEST(UcxBackend, AFailureOfOneLevelEndsMessagesOfTheOther) {
  expect_success("lost_messages", {"hierarchical_ucx", "aab", kOverTcp});
}

TEST(UcxBackend, ManyCommunicatorsAtOnce) {
  expect_success("communicators", {"ucx", "ab", kOverTcp});
}

TEST(UcxBackend, SharedMemoryIsRefusedAcrossHosts) {
  expect_success("refuse", {"default", "ab"});
}

}  // namespace
}  // namespace weft
