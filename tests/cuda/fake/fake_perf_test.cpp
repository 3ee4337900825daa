// The perf programs' --device cuda on the fake GPU: rows, checks, what is timed, what is compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <thread>

#include "common/weft_calls.hpp"
#include "cuda/device_sweep.hpp"
#include "cuda/fake/on_fake_nccl.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft::perf {
namespace {

using namespace std::chrono_literals;
using test::FakeGpu;
using test::FakeNccl;

class FakePerf : public test::OnFakeNccl {
 protected:
  static Options parsed(Case const& what, std::string const& line) {
    std::istringstream words("program --device cuda -b 8 -e 512 -f 4 -n 3 -w 1 --rounds 2 " + line);
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    std::vector<char const*> pointers;
    for (auto const& argument : arguments) pointers.push_back(argument.c_str());
    auto const result = parse_options(what, static_cast<int>(pointers.size()), pointers.data());
    EXPECT_FALSE(result.exit_code) << line;
    return result.options;
  }

  struct Outcome {
    std::vector<std::vector<std::string>> rows;
    std::string text;
    int code = 0;
  };
  /// The program's ranks as threads; what rank 0 printed.
  static Outcome run(std::string const& op, int ranks, std::string const& line) {
    auto const what = make_case(op);
    auto const options = parsed(*what, line);
    std::atomic<int> code = 0;
    testing::internal::CaptureStdout();
    test::run_thread_ranks(ranks, [&](Communicator& world) {
      Gpu const on{FakeNccl::libraries(), "0000:00:0" + std::to_string(world.rank()), "fake GPU"};
      if (DeviceSweep(*what, options, on, world).run() != 0) code = 1;
    });
    Outcome outcome{{}, testing::internal::GetCapturedStdout(), code};
    std::istringstream lines(outcome.text);
    for (std::string row; std::getline(lines, row);) {
      if (row.empty() || row[0] == '#') continue;
      std::istringstream fields(row);
      auto& cells = outcome.rows.emplace_back();
      for (std::string cell; fields >> cell;) cells.push_back(cell);
    }
    return outcome;
  }
};

TEST_F(FakePerf, EveryOperationHasNcclTestsRowsAndRightResultsBesideRawNccl) {
  for (std::string const op : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall",
                               "gather", "scatter", "sendrecv", "hypercube"}) {
    for (int const ranks : {2, 4}) {
      auto const outcome = run(op, ranks, "--compare nccl --cost -r 1");
      EXPECT_EQ(outcome.code, 0) << outcome.text;
      ASSERT_EQ(outcome.rows.size(), 4U) << outcome.text;
      for (auto const& row : outcome.rows) {
        ASSERT_EQ(row.size(), 17U) << outcome.text;  // thirteen; host, nccl, nccl/t, nccl host
        EXPECT_EQ(row[8], "0") << op << '\n' << outcome.text;
        EXPECT_EQ(row[12], op == "sendrecv" ? "N/A" : "0") << op << '\n' << outcome.text;
      }
      EXPECT_NE(outcome.text.find("on GPUs"), std::string::npos);
      EXPECT_NE(outcome.text.find("[0000:00:01] fake GPU"), std::string::npos) << outcome.text;
    }
  }
}

TEST_F(FakePerf, TypesReductionsGroupsAndPrivateMemory) {
  for (std::string const choice : {"-d all", "-d half -o all"}) {
    auto const all = run("all_reduce", 2, "-b 64 -e 64 -n 1 --rounds 1 --in-place 0 " + choice);
    EXPECT_EQ(all.code, 0) << all.text;
  }
  EXPECT_EQ(run("reduce_scatter", 3, "-R 0 -u 3 -d half -o mulsum --compare nccl").code, 0);
  EXPECT_EQ(run("gather", 3, "-r all -z 1 --memory private").code, 0);
  gpu.forget_calls();
  auto const outcome = run("all_reduce", 2, "-b 64 -e 64 -m 5 --in-place 0 -c 0 --compare nccl");
  EXPECT_EQ(outcome.rows.at(0).at(8), "N/A");
  // A warm-up and two rounds of three, of five calls each, by two ranks of two sides.
  EXPECT_EQ(gpu.count("ncclAllReduce"), (1U + 2 * 3) * 5 * 2 * 2);
}

TEST_F(FakePerf, WrongResultsAreCountedAndFailTheProgram) {
  nccl.corrupts = true;
  auto const outcome = run("all_gather", 2, "-b 64 -e 64");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.rows.at(0).at(8), "0") << outcome.text;
  EXPECT_NE(outcome.text.find("FAILED"), std::string::npos) << outcome.text;
}

TEST_F(FakePerf, TimesAreTheStreamsAndNobodyWaitsBetweenCalls) {
  test::run_thread_ranks(1, [&](Communicator& world) {
    Board board(meeting_of(world));
    Stream stream = gpu.make_stream();
    DeviceTimer timer(board, stream, Across::max);
    auto const before = gpu.host_waits_here();
    auto const slow = [&] {
      EXPECT_EQ(gpu.host_waits_here(), before);
      stream.enqueue([] { std::this_thread::sleep_for(4ms); });
    };
    auto const sample = timer.measure({"slow", {}, slow, 2}, 5);
    EXPECT_GE(sample.device, 1.9e-3);  // 4 ms are two calls
    EXPECT_LT(sample.host, sample.device);
  });
}

TEST_F(FakePerf, WhatIsAboutHostMemoryIsRefusedInOneLine) {
  auto const what = make_case(Op::all_reduce);
  for (std::string const option : {"--limit", "--overlap", "--link=1us:1GB/s", "--touch=0", "--compare=mpi"}) {
    std::array<char const*, 4> const arguments{"program", "--device", "cuda", option.c_str()};
    testing::internal::CaptureStderr();
    auto const result = parse_options(*what, static_cast<int>(arguments.size()), arguments.data());
    auto const text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(result.exit_code, 2) << option;
    EXPECT_NE(text.find(option.substr(0, option.find('='))), std::string::npos) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  }
}

/// A program's exit code, and what it wrote.
std::pair<int, std::string> run_program_there(std::string const& command) {
  auto const line = "CUDA_VISIBLE_DEVICES= timeout 60 " WEFT_PERF_PROGRAMS "/" + command + " 2>&1";
  std::string text;
  FILE* const pipe = popen(line.c_str(), "r");
  std::array<char, 512> chunk{};
  while (auto const got = fread(chunk.data(), 1, chunk.size(), pipe)) text.append(chunk.data(), got);
  return {WEXITSTATUS(pclose(pipe)), text};
}

TEST(PerfPrograms, SayInOneLineThatThereIsNoGpu) {
  for (std::string const command : {"all_reduce_perf -t 2 --device cuda", "cuda_host_cost_perf -t 2 --gpu"}) {
    auto const [code, text] = run_program_there(command);
    EXPECT_EQ(code, 2) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_NE(text.find("no GPU"), std::string::npos) << text;
  }
}

TEST(PerfPrograms, HostCostIsMeasuredWithoutAGpuAndSaysSo) {
  auto const [code, text] = run_program_there("cuda_host_cost_perf -t 2 --rounds 2 --calls 50");
  EXPECT_NE(code, 2) << text;  // 1: slower than the bar, as a busy machine may be
  EXPECT_NE(text.find("nor is a GPU"), std::string::npos) << text;
  for (std::string const row :
       {"all_reduce ", "reduce_scatter ", "all_gather ", "broadcast ", "sendrecv ", "group of 8"})
    EXPECT_NE(text.find('\n' + row), std::string::npos) << row << text;
}

}  // namespace
}  // namespace weft::perf
