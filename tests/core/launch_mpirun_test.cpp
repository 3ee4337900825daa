#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "harness/shell.hpp"

namespace weft {
namespace {

using test::run_shell;
using test::ShellResult;

/// `mpirun -np 3 launch_probe ARGUMENTS`, both streams; ends with code 124 where it hangs.
ShellResult mpirun(std::string const& arguments) {
  return run_shell("timeout 90 " WEFT_MPIRUN " --oversubscribe -np 3 " WEFT_LAUNCH_PROBE " " + arguments);
}

void expect_contains(std::string const& text, std::string const& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\ndoes not contain\n" << part;
}

std::size_t lines_of_weft(std::string const& text) {
  std::size_t lines = 0;
  for (std::size_t at = text.find("weft: "); at != std::string::npos; at = text.find("weft: ", at + 1)) ++lines;
  return lines;
}

TEST(LaunchMpirun, WhatEveryRankFindsWrongIsSaidOnce) {
  setenv("WEFT_BIND", "yes", 1);
  ShellResult const configuration = mpirun("succeed");
  unsetenv("WEFT_BIND");
  EXPECT_EQ(configuration.code, 2) << configuration.output;
  expect_contains(configuration.output, "weft: WEFT_BIND=yes: expected 0 or 1");
  EXPECT_EQ(lines_of_weft(configuration.output), 1U) << configuration.output;

  ShellResult const body = mpirun("all");
  EXPECT_EQ(body.code, 1) << body.output;
  EXPECT_EQ(lines_of_weft(body.output), 1U) << body.output;
}

TEST(LaunchMpirun, EveryProcessIsARank) {
  for (char const* ranks : {"1", "3"}) {
    ShellResult const outcome = mpirun(std::string("succeed ") + ranks);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    for (int rank = 0; rank < 3; ++rank) expect_contains(outcome.output, "rank " + std::to_string(rank) + " of 3: 6\n");
  }
}

TEST(LaunchMpirun, RefusesAnotherCount) {
  ShellResult const outcome = mpirun("succeed 2");
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  expect_contains(outcome.output, "weft: 2 ranks were asked for, but mpi started 3");
}

TEST(LaunchMpirun, AFailedRankEndsTheJobAndTheOthersSaySo) {
  struct Case {
    char const* mode;
    char const* line;
  };
  for (Case const& one :
       {Case{"throw", "weft: rank 1: thrown on purpose"}, Case{"return", "weft: rank 1: returned 3"}}) {
    ShellResult const outcome = mpirun(one.mode);
    EXPECT_NE(outcome.code, 0);
    EXPECT_NE(outcome.code, 124) << outcome.output;
    expect_contains(outcome.output, one.line);
    expect_contains(outcome.output, ": rank 1 left ");
    EXPECT_EQ(lines_of_weft(outcome.output), 2U) << outcome.output;  // the others say the same, so one of them does
  }
}

TEST(LaunchMpirun, AKilledRankEndsTheJob) {
  ShellResult const outcome = mpirun("kill");
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.code, 124) << outcome.output;
}

}  // namespace
}  // namespace weft
