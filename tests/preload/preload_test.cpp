#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "examples/temporary_folder.hpp"
#include "harness/shell.hpp"

namespace weft {
namespace {

using test::run_shell;
using test::ShellResult;

/// Its lines sorted: ranks print when they like.
ShellResult sorted(ShellResult result) {
  std::vector<std::string> lines;
  std::istringstream in(result.output);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  result.output.clear();
  for (auto const& line : lines) result.output += line + "\n";
  return result;
}

constexpr char const* kTimeout = "timeout -k 2 100 ";

ShellResult shell(std::string const& command) {
  return sorted(run_shell(kTimeout + command));
}

std::string mpirun(int ranks, std::string const& options = {}) {
  return std::string(WEFT_MPIRUN) + " --oversubscribe -np " + std::to_string(ranks) + " " + options + " ";
}

ShellResult preloaded(int ranks, std::string const& program, std::string const& options = {}) {
  return shell(mpirun(ranks, options + " -x LD_PRELOAD=" WEFT_PRELOAD_LIBRARY) + program);
}

/// The same through a file for each rank: of what ranks print much of at once, mpirun mixes parts of lines.
ShellResult through_files(std::string const& start, std::string const& program) {
  test::TemporaryFolder const folder;
  auto const to_file = R"(sh -c 'exec "$0" "$@" >)" + folder.file("$OMPI_COMM_WORLD_RANK") + "' ";
  return sorted(run_shell("{ " + (kTimeout + start) + to_file + program + "; code=$?; cat " + folder.file("*") +
                          "; exit $code; }"));
}

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

/// Without its report, which only one of two runs has.
std::string without_statistics(std::string const& text) {
  std::istringstream in(text);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("weft: collectives") && !line.starts_with("MPI_")) kept += line + "\n";
  }
  return kept;
}

void expect_same_answers(int ranks, std::string const& program) {
  auto const expected = through_files(mpirun(ranks), program);
  auto const got = through_files(mpirun(ranks, "-x WEFT_MPI_STATS=1 -x LD_PRELOAD=" WEFT_PRELOAD_LIBRARY), program);
  ASSERT_EQ(expected.code, 0) << expected.output;
  ASSERT_EQ(got.code, 0) << got.output;
  EXPECT_FALSE(expected.output.empty());
  EXPECT_EQ(without_statistics(got.output), expected.output);
  EXPECT_TRUE(contains(got.output, "weft: collectives of rank 0")) << got.output;
}

TEST(Preload, GivesTheSameAnswers) {
  auto const base = std::random_device{}() % 100000;
  RecordProperty("seed", static_cast<int>(base));
  std::printf("seed %u\n", base);
  for (int const ranks : {2, 3, 4}) {
    for (unsigned i = 0; i < 2; ++i) expect_same_answers(ranks, WEFT_SEMANTICS " " + std::to_string(base + i) + " 300");
  }
}

TEST(Preload, ServesEveryFunction) {
  auto const run = preloaded(2, WEFT_SEMANTICS " 7 800", "-x WEFT_MPI_STATS=1");
  ASSERT_EQ(run.code, 0) << run.output;
  for (char const* name :
       {"Barrier", "Bcast", "Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan", "Gather",
        "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall", "Alltoallv"}) {
    auto const line = std::string("MPI_") + name + ": ";
    EXPECT_TRUE(contains(run.output, line)) << name;
    EXPECT_FALSE(contains(run.output, line + "0 served")) << name;
  }
  EXPECT_TRUE(contains(run.output, "operation or type unknown to Weft"));
  EXPECT_TRUE(contains(run.output, "one rank"));
}

class Trap : public testing::TestWithParam<char const*> {};

TEST_P(Trap, KeepsMpisMeaning) {
  for (int const ranks : {2, 4}) {
    auto const run = preloaded(ranks, std::string(WEFT_TRAPS " ") + GetParam(), "-x WEFT_MPI_STATS=1");
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_TRUE(contains(run.output, "weft: collectives of rank 0")) << run.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Preload, Trap,
                         testing::Values("progress_in_waits", "progress_in_loops",
                                         "progress_beside_unexpected_messages", "handles_are_reused",
                                         "freed_in_any_order", "a_thousand_communicators", "many_at_once", "threads",
                                         "own_attributes", "calls_in_delete_callbacks", "calls_in_finalize",
                                         "exscan_into_nothing", "interlaced_parts", "small_floats_raise_nothing",
                                         "a_bad_call_of_one_rank", "sides_of_different_sizes", "no_communicator",
                                         "inter_communicators", "a_late_rank", "never_freed",
                                         "types_of_fortrans_kinds"),
                         [](auto const& trap) { return std::string(trap.param); });

TEST(Preload, BadArgumentsReachTheErrorHandlerAsMpisDo) {
  expect_same_answers(2, WEFT_TRAPS " error_handlers");
}

/// Bytes that the machine could still give.
std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, unit; file >> name;) {
    std::size_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib << 10U;
    std::getline(file, unit);
  }
  return 0;
}

TEST(Preload, MovesElementsThatNoIntCounts) {
  constexpr std::size_t kNeeded = std::size_t{14} << 30U;
  if (available_memory() < kNeeded) GTEST_SKIP() << "needs 14 GiB of memory";
  auto const run = preloaded(2, WEFT_TRAPS " a_large_element", "-x WEFT_MPI_STATS=1");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(contains(run.output, "MPI_Bcast: 1 served; 0 passed on")) << run.output;
}

TEST(Preload, ADeadRankReachesTheErrorHandler) {
  auto const run = preloaded(3, WEFT_TRAPS " dead_peer", "--enable-recovery");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(contains(run.output, "MPI_Allreduce: rank 1 (pid ")) << run.output;
  EXPECT_TRUE(contains(run.output, " after 0.")) << run.output;
}

TEST(Preload, DifferentCallsAreAnErrorOnEveryRank) {
  auto const run = preloaded(2, WEFT_TRAPS " different_calls");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(contains(run.output, "call 1 differs between ranks")) << run.output;
  EXPECT_FALSE(contains(run.output, "code 0")) << run.output;
}

TEST(Preload, OtherHostsPassThrough) {
  auto const half = [](int id) {
    return "-np 1 -x LD_PRELOAD=" WEFT_PRELOAD_LIBRARY " -x WEFT_MPI_STATS=1 -x WEFT_HOST_ID=host" +
           std::to_string(id) + " " WEFT_TRAPS " never_freed";
  };
  mpirun(2);  // for the environment
  auto const run = shell(std::string(WEFT_MPIRUN) + " --oversubscribe " + half(0) + " : " + half(1));
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(contains(run.output, "MPI_Allreduce: 0 served; 2 passed on (several hosts 2)")) << run.output;
}

TEST(Preload, OneRankThatCannotStartMakesAllPassOn) {
  auto const half = [](char const* setting) {
    return std::string("-np 1 -x LD_PRELOAD=" WEFT_PRELOAD_LIBRARY " -x WEFT_MPI_STATS=1 ") + setting +
           " " WEFT_TRAPS " never_freed";
  };
  mpirun(2);
  auto const run =
      shell(std::string(WEFT_MPIRUN) + " --oversubscribe " + half("") + " : " + half("-x WEFT_TIMEOUT=soon"));
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(contains(run.output, "WEFT_TIMEOUT=soon: expected")) << run.output;
  EXPECT_TRUE(contains(run.output, "MPI_Allreduce: 0 served; 2 passed on (Weft could not start 2)")) << run.output;
}

TEST(Preload, DoesNothingInProcessesThatAreNotMpis) {
  auto const run = shell("env LD_PRELOAD=" WEFT_PRELOAD_LIBRARY
                         " WEFT_MPI_STATS=1 WEFT_TIMEOUT=soon sh -c 'echo one; sh -c "
                         "\"echo two\"'");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.output, "one\ntwo\n");
}

TEST(Preload, MpirunAndShellsMayInheritIt) {
  mpirun(2);
  auto const run = shell("env LD_PRELOAD=" WEFT_PRELOAD_LIBRARY " WEFT_MPI_STATS=1 " WEFT_MPIRUN
                         " --oversubscribe -np 2 sh -c '" WEFT_TRAPS " never_freed'");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(contains(run.output, "MPI_Allreduce: 2 served; 0 passed on")) << run.output;
}

TEST(Preload, SaysNothingUnlessAsked) {
  auto const run = preloaded(2, WEFT_TRAPS " never_freed");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.output, "");
}

TEST(Preload, LeavesNoSharedMemoryBehind) {
  EXPECT_EQ(preloaded(2, WEFT_TRAPS " many_at_once").code, 0);
  EXPECT_EQ(shell("ls -1 /dev/shm | grep -i weft").output, "");  // other jobs may be running
}

TEST(Preload, ShowsNothingButMpisNames) {
  auto const names = shell("nm -D --defined-only " WEFT_PRELOAD_LIBRARY " | awk '{print $3}' | grep -vi ^mpi_");
  EXPECT_EQ(names.output, "");
}

#if WEFT_TEST_FORTRAN
TEST(Preload, FortranGivesTheSameAnswers) {
  expect_same_answers(2, WEFT_FORTRAN_PROGRAM);
  auto const run = preloaded(3, WEFT_FORTRAN_PROGRAM, "-x WEFT_MPI_STATS=1");
  for (char const* name : {"Allreduce", "Bcast", "Allgatherv", "Alltoall", "Gather", "Scan", "Barrier"})
    EXPECT_TRUE(contains(run.output, std::string("MPI_") + name + ": 1 served; 0 passed on")) << run.output;
}

TEST(Preload, Fortran2008GivesTheSameAnswers) {
  expect_same_answers(2, WEFT_FORTRAN_2008_PROGRAM);
  auto const run = preloaded(3, WEFT_FORTRAN_2008_PROGRAM, "-x WEFT_MPI_STATS=1");
  EXPECT_TRUE(contains(run.output, "MPI_Allreduce: 1 served; 0 passed on")) << run.output;
}
#endif

}  // namespace
}  // namespace weft
