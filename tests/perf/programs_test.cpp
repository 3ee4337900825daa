// The programs as their users run them: a command line in, a table and an exit code out.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

struct Outcome {
  int code = -1;
  std::string output;
};

/// Runs `command` in a shell under a limit of four minutes (sanitizers are slow); stdout, or with `errors` stderr only.
Outcome run(std::string const& command, bool errors = false) {
  auto const redirected =
      "timeout 240 " + std::string(WEFT_PERF_PROGRAMS) + "/" + command + (errors ? " 2>&1 >/dev/null" : "");
  Outcome outcome;
  FILE* const pipe = popen(redirected.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> chunk{};
  while (std::size_t const got = fread(chunk.data(), 1, chunk.size(), pipe)) outcome.output.append(chunk.data(), got);
  int const status = pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::vector<std::string>> data_lines(std::string const& text) {
  std::vector<std::vector<std::string>> result;
  for (auto const& line : lines_of(text)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream stream(line);
    auto& fields = result.emplace_back();
    for (std::string field; stream >> field;) fields.push_back(field);
  }
  return result;
}

/// Reads and removes the document that -J wrote.
nlohmann::json document_at(std::string const& path) {
  std::ifstream file(path);
  auto document = nlohmann::json::parse(file);
  std::remove(path.c_str());
  return document;
}

struct Job {
  std::string program;
  int ranks;
  std::string arguments;
};

class Table : public ::testing::TestWithParam<Job> {};

TEST_P(Table, HasRightResultsAtEverySize) {
  auto const& job = GetParam();
  auto const outcome = run(job.program + " --ranks " + std::to_string(job.ranks) +
                           " -b 8 -e 1K -f 4 -n 1 -w 1 --rounds 1 -c 1 " + job.arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("# Out of bounds values : 0 OK"), std::string::npos) << outcome.output;
  auto const lines = data_lines(outcome.output);
  ASSERT_FALSE(lines.empty()) << outcome.output;
  EXPECT_EQ(lines.size() % 4, 0U);  // 8, 32, 128, 512 bytes per type and reduction
  for (auto const& fields : lines) {
    ASSERT_EQ(fields.size(), 13U) << outcome.output;
    EXPECT_EQ(fields[8], "0") << outcome.output;
    EXPECT_EQ(fields[12], job.program == "sendrecv_perf" ? "N/A" : "0") << outcome.output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, Table,
    ::testing::Values(Job{"all_reduce_perf", 1, ""}, Job{"all_reduce_perf", 2, "-c 3"},
                      Job{"all_reduce_perf", 2, "-d all -o all"}, Job{"all_reduce_perf", 2, "--memory private"},
                      Job{"all_reduce_perf", 2, "-m 3 -z 1"}, Job{"all_reduce_perf", 2, "-u 3"},
                      Job{"all_reduce_perf", 2, "-R 0 --touch 0 -a 1"}, Job{"reduce_scatter_perf", 2, "-u 1"},
                      Job{"reduce_scatter_perf", 3, "-d half -o all"}, Job{"all_gather_perf", 2, ""},
                      Job{"all_gather_perf", 3, "--memory private"}, Job{"broadcast_perf", 2, "-r 1"},
                      Job{"broadcast_perf", 3, "--memory private -r all"}, Job{"reduce_perf", 2, "-r 1"},
                      Job{"reduce_perf", 3, "--memory private -d double -o max"}, Job{"alltoall_perf", 2, ""},
                      Job{"alltoall_perf", 3, "--memory private"}, Job{"gather_perf", 2, "-r all"},
                      Job{"gather_perf", 3, "--memory private"}, Job{"scatter_perf", 2, "-r all"},
                      Job{"scatter_perf", 3, "--memory private"}, Job{"sendrecv_perf", 2, ""},
                      Job{"sendrecv_perf", 3, "--memory private"}, Job{"hypercube_perf", 1, ""},
                      Job{"hypercube_perf", 2, ""}, Job{"hypercube_perf", 4, "--memory private"}));

// What scripts that read nccl-tests' output look for, as one expression each.
TEST(Programs, SayThatNobodyCouldReadTheirTable) {
  for (std::string const arguments : {"-t 2 -b 8 -e 8 -n 1 -w 0 --rounds 1", "--help"}) {
    auto const outcome = run("all_reduce_perf " + arguments + " 2>&1 >/dev/full");
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.output.find("all_reduce_perf: standard output: cannot be written"), std::string::npos)
        << outcome.output;
  }
}

TEST(Programs, AreReadByWhatReadsNcclTests) {
  std::regex const start(R"(# Collective test starting: (\w+)_perf\s*)");
  std::regex const options(
      R"(# nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+) step: (\d+)\((factor|bytes)\) warmup iters: (\d+) )"
      R"(iters: (\d+) agg iters: (\d+) validation: (\d+) graph: (\d+) unalign: (\d+)\s*)");
  std::regex const device(R"(#\s+Rank\s+(\d+) Group\s+(\d+) Pid\s+(\d+) on\s+(\S+) device\s+(\d+) \[([^\]]*)\] (.+))");
  std::regex const names(
      R"(#\s+size\s+count\s+type\s+redop\s+root\s+time\s+algbw\s+busbw\s+#wrong\s+time\s+algbw\s+busbw\s+#wrong\s*)");
  std::regex const units(
      R"(#\s+\(B\)\s+\(elements\)\s+\(us\)\s+\(GB/s\)\s+\(GB/s\)\s+\(us\)\s+\(GB/s\)\s+\(GB/s\)\s*)");
  std::regex const row(R"(\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+))"
                       R"((?:\s+(\d+(?:\.\d+)?(?:e[+-]\d+)?)\s+(\d+(?:\.\d+)?)\s+(\d+(?:\.\d+)?)\s+(\d+|N/A)){2}\s*)");
  std::regex const bounds(R"(# Out of bounds values : (\d+) (OK|FAILED)\s*)");
  std::regex const average(R"(# Avg bus bandwidth    : ([0-9.e+-]+)\s*)");
  std::regex const end(R"(# Collective test concluded: (\w+)_perf\s*)");
  for (std::string const program : {"all_reduce", "gather"}) {
    auto const outcome = run(program + "_perf -t 2 -g 1 -b 64 -e 64 -n 1 --rounds 1");
    ASSERT_EQ(outcome.code, 0) << outcome.output;
    std::vector<std::pair<std::regex const*, int>> const wanted{{&start, 1},  {&options, 1}, {&device, 2},
                                                                {&names, 1},  {&units, 1},   {&row, 1},
                                                                {&bounds, 1}, {&average, 1}, {&end, 1}};
    for (auto const& [pattern, count] : wanted) {
      int found = 0;
      for (auto const& line : lines_of(outcome.output)) found += std::regex_match(line, *pattern) ? 1 : 0;
      EXPECT_EQ(found, count) << outcome.output;
    }
  }
}

TEST(Programs, TakeEveryOptionOfNcclTests) {
  auto const outcome = run(
      "all_reduce_perf -t 1 -g 2 -b 64 -e 128 -i 64 -f 2 -n 1 -m 1 -w 1 -N 2 -p 1 -c 1 -o sum -d float -r 0 -z 0 -y 0 "
      "-T 20 -G 1 -C 1 -S 1 -a 3 -R 2 -x 1 -D 0 -V 16 -M 1 -u 0 --rounds 1");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("# Note: -G: "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("cputime"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("# Memory usage"), std::string::npos) << outcome.output;
  auto const lines = data_lines(outcome.output);
  ASSERT_EQ(lines.size(), 4U) << outcome.output;      // two sizes, two cycles
  EXPECT_EQ(lines[0].size(), 15U) << outcome.output;  // a date and a time behind the thirteen
}

#if !WEFT_WITH_NCCL
TEST(Programs, SayInOneLineThatThisBuildHasNoCuda) {
  auto const outcome = run("all_reduce_perf -t 2 --device cuda", true);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(lines_of(outcome.output).size(), 1U) << outcome.output;
  EXPECT_NE(outcome.output.find("built without CUDA"), std::string::npos) << outcome.output;
  EXPECT_EQ(run("all_reduce_perf --compare nccl").code, 2);
}
#endif

TEST(Programs, WriteTheDocumentOfDashJ) {
  auto const path = ::testing::TempDir() + "weft_perf_document.json";
  ASSERT_EQ(run("gather_perf -t 2 -b 64 -e 256 -f 2 -n 1 --rounds 1 -J " + path).code, 0);
  auto const document = document_at(path);
  ASSERT_EQ(document["results"].size(), 3U);
  EXPECT_EQ(document["results"][1]["size"], 128);
  EXPECT_EQ(document["results"][1]["in_place"]["nwrong"], 0);
  EXPECT_EQ(document["config"]["devices"].size(), 2U);
  EXPECT_EQ(document["out_of_bounds"]["okay"], "true");
}

TEST(Programs, WriteHowOftenTheyCalled) {
  auto const path = ::testing::TempDir() + "weft_perf_iterations.json";
  auto const outcome = run("all_reduce_perf -t 2 -b 1K -e 64K -f 64 -n 2 --rounds 1 -c 0 -J " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  auto const document = document_at(path);
  ASSERT_EQ(document["results"].size(), 2U);
  EXPECT_GE(document["results"][0]["actual_iterations"], 20);  // 100 where no ranks share a core
  EXPECT_EQ(document["results"][1]["actual_iterations"], 8);
}

TEST(Programs, WriteTheFurtherColumnsIntoTheDocumentToo) {
  auto const path = ::testing::TempDir() + "weft_perf_columns.json";
  auto const outcome =
      run("all_reduce_perf -t 2 -b 64K -e 64K -n 2 --rounds 1 --cost --limit --overlap --label night --link 20us:2GB/s "
          "-S 1 "
          "-J " +
          path);
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  auto const document = document_at(path);
  EXPECT_EQ(document["config"]["label"], "night");
  EXPECT_NE(document["config"]["link"], "");
  ASSERT_EQ(document["results"].size(), 1U);
  auto const& result = document["results"][0];
  for (char const* const key :
       {"cost_us", "call_base_us", "cost_base_us", "limit_us", "overlap_percent", "canary_copy_us"})
    EXPECT_TRUE(result[key].is_number()) << key << ' ' << result;
  EXPECT_EQ(result["timestamp"].get<std::string>().size(), std::string("2026-01-31 12:34:56").size());
  EXPECT_FALSE(result.contains("peer_call_us")) << result;
}

// Whether anything disturbs the run is not the test's to say: whatever happens, table and document agree.
TEST(Programs, SayWhichFiguresAreOfDisturbedRounds) {
  auto const path = ::testing::TempDir() + "weft_perf_disturbed.json";
  auto const outcome = run("all_reduce_perf -t 2 -b 64 -e 4K -f 8 -n 1 --rounds 2 -J " + path);
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("best of up to 2 undisturbed rounds, else the least disturbed\n"), std::string::npos)
      << outcome.output;
  auto const document = document_at(path);
  int disturbed = 0;
  for (auto const& result : document["results"]) {
    EXPECT_GE(result["rounds"], 2) << result;
    disturbed += result["rounds_kept"] == 0 ? 1 : 0;
  }
  EXPECT_EQ(document["disturbed"]["lines"], 3);
  EXPECT_EQ(document["disturbed"]["without_undisturbed_round"], disturbed);
  auto const said = outcome.output.find("# No undisturbed round for " + std::to_string(disturbed) + " of 3 lines: ");
  EXPECT_EQ(said != std::string::npos, disturbed > 0) << outcome.output;
}

TEST(Programs, CountNoRoundWhoseCanariesAreNotAsWanted) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "where ranks share a core nothing is waited for";
  auto const path = ::testing::TempDir() + "weft_perf_wanted.json";
  for (char const* const variable : {"WEFT_PERF_BARRIER_US", "WEFT_PERF_WORK_US"}) {
    setenv(variable, "0.001", 1);  // faster than any
    auto const outcome = run("all_reduce_perf -t 2 -b 64 -e 64 -n 1 --rounds 1 -c 0 -J " + path);
    unsetenv(variable);
    ASSERT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_EQ(document_at(path)["results"][0]["rounds_kept"], 0) << variable;
  }
}

// Who multiplies processes, nThread and nGpus, as with nccl-tests, gets the number of ranks.
TEST(Programs, SayThatALaunchersProcessesAreTheRanks) {
  auto const job = std::to_string(getpid());
  std::vector<std::pair<char const*, char const*>> const environment{{"WORLD_SIZE", "2"},
                                                                     {"LOCAL_WORLD_SIZE", "2"},
                                                                     {"MASTER_ADDR", "127.0.0.1"},
                                                                     {"MASTER_PORT", "29400"},
                                                                     {"TORCHELASTIC_RUN_ID", job.c_str()},
                                                                     {"RANK", "1"}};
  for (auto const& [name, value] : environment) setenv(name, value, 1);
  std::string const command = "all_reduce_perf -t 2 -b 64 -e 64 -n 1 --rounds 1";
  auto const outcome =
      run(command + " >/dev/null & RANK=0 timeout 240 " + std::string(WEFT_PERF_PROGRAMS) + "/" + command);
  for (auto const& [name, value] : environment) unsetenv(name);
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("# nThread 1 nGpus 1 "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("# Note: -t, -g: start nothing here; the 2 processes "), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("#  Rank  1 "), std::string::npos) << outcome.output;
  auto const forked = run(command);
  EXPECT_NE(forked.output.find("# nThread 2 nGpus 1 "), std::string::npos) << forked.output;
}

TEST(Programs, StepByBytesAndByFactor) {
  auto const by_bytes = data_lines(run("all_reduce_perf --ranks 2 -b 8 -e 40 -i 16 -n 1 --rounds 1").output);
  ASSERT_EQ(by_bytes.size(), 3U);
  EXPECT_EQ(by_bytes[2][0], "40");
  auto const by_factor = data_lines(run("all_reduce_perf --ranks 2 -b 8 -e 100 -f 3 -n 1 --rounds 1").output);
  ASSERT_EQ(by_factor.size(), 3U);
  EXPECT_EQ(by_factor[2][0], "72");
  auto const of_real_numbers = data_lines(run("all_reduce_perf -t 2 -b 0.5K -e 1.1e3 -f 2 -n 1 --rounds 1").output);
  ASSERT_EQ(of_real_numbers.size(), 2U);
  EXPECT_EQ(of_real_numbers[0][0], "512");
}

TEST(Programs, PrintFurtherColumnsWhenAsked) {
  auto const outcome = run("all_reduce_perf -t 2 -b 64K -e 64K -n 2 --rounds 1 --cost --limit --overlap");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  auto const lines = data_lines(outcome.output);
  ASSERT_EQ(lines.size(), 1U) << outcome.output;
  ASSERT_EQ(lines[0].size(), 17U) << outcome.output;  // cost, limit, t/limit, overlap
  EXPECT_GT(std::stod(lines[0][14]), 0) << outcome.output;
}

// On an emulated link a collective sleeps, so computation hides nearly all of it on idle cores, and
// still a good part where other programs run beside.
TEST(Programs, SeeOverlapWhereThereIsSome) {
  auto const outcome = run("all_reduce_perf -t 2 -b 64K -e 64K -n 2 --rounds 3 --overlap --link 10ms:1GB/s");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  auto const lines = data_lines(outcome.output);
  ASSERT_EQ(lines.size(), 1U) << outcome.output;
  EXPECT_GT(std::stod(lines[0][13]), 25) << outcome.output;
}

TEST(Programs, WriteOneJsonLinePerSize) {
  auto const path = ::testing::TempDir() + "weft_perf_lines.json";
  std::remove(path.c_str());
  ASSERT_EQ(run("all_reduce_perf --ranks 2 -b 64 -e 256 -f 4 -n 1 --rounds 1 --json " + path).code, 0);
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines)
    EXPECT_EQ(nlohmann::json::parse(line)["library"], "weft") << line;
  EXPECT_EQ(lines, 2);
  std::remove(path.c_str());
}

class BadArguments : public ::testing::TestWithParam<std::string> {};

TEST_P(BadArguments, AreOneLineAndExitCodeTwo) {
  auto const outcome = run(GetParam(), true);
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  auto const lines = lines_of(outcome.output);
  ASSERT_EQ(lines.size(), 1U) << outcome.output;
  EXPECT_EQ(lines[0].rfind(GetParam().substr(0, GetParam().find(' ')) + ": ", 0), 0U) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    Programs, BadArguments,
    ::testing::Values("all_reduce_perf --ranks 0", "all_reduce_perf --ranks 1000", "all_reduce_perf -b x",
                      "all_reduce_perf -b 8 -e 4", "all_reduce_perf -b 0 -e 8 -f 2", "all_reduce_perf -f 0",
                      "all_reduce_perf -i 0", "all_reduce_perf -n 0", "all_reduce_perf -d quaternion",
                      "all_reduce_perf -o minus", "all_reduce_perf -o bxor", "all_reduce_perf -R 0 --memory symmetric",
                      "hypercube_perf -t 3", "all_reduce_perf -r one", "all_reduce_perf --memory core",
                      "all_reduce_perf --compare nccl", "all_reduce_perf --link fast", "broadcast_perf --ranks 2 -r 2",
                      "all_reduce_perf --compare mpi --ranks 2", "all_reduce_perf -b -8", "all_reduce_perf -f -2",
                      "all_reduce_perf -p 5", "all_reduce_perf -y 2", "all_reduce_perf -G -1", "all_reduce_perf -x 9",
                      "all_reduce_perf -x -1", "all_reduce_perf -D -1", "all_reduce_perf -V -1", "all_reduce_perf -C 2",
                      "all_reduce_perf --touch 7", "adamw_perf --bogus", "adamw_perf -t 0", "adamw_perf -n -5",
                      "adamw_perf --judge-from -1", "group_perf --gradients 2", "adamw_perf -n many",
                      "adamw_perf -n 3 -t 4", "adamw_perf --rounds 0", "group_perf --parts 4X", "group_perf --parts 6",
                      "group_perf --fuse-bytes lots", "group_perf --bogus", "barrier_perf -t 0",
                      "barrier_perf --compare nccl", "barrier_perf --compare mpi"));

// mpirun may start more ranks than this program can: which roots there are is not known before.
TEST(Programs, RefuseARootOfManyRanksByTheirNumber) {
  auto const outcome = run("broadcast_perf -t 2 -b 8 -e 8 -r 64", true);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.output.find("there is no rank 64 among 2"), std::string::npos) << outcome.output;
}

// What takes long to measure is not lost for want of a folder.
TEST(Programs, RefuseAFileTheyCannotWriteBeforeTheyMeasure) {
  for (std::string const command :
       {"all_reduce_perf -t 2 -b 8 -e 8 --json /nowhere/lines.json",
        "all_reduce_perf -t 2 -b 8 -e 8 -J /nowhere/document.json", "group_perf -t 2 --json /nowhere/lines.json",
        "barrier_perf -t 2 --json /nowhere/lines.json"}) {
    EXPECT_EQ(data_lines(run(command).output).size(), 0U) << command;
    auto const outcome = run(command, true);
    EXPECT_EQ(outcome.code, 2) << outcome.output;
    EXPECT_NE(outcome.output.find("cannot write /nowhere/"), std::string::npos) << outcome.output;
    EXPECT_EQ(lines_of(outcome.output).size(), 1U) << outcome.output;
  }
}

TEST(GroupPerf, TakesSizesAsTheOtherProgramsDo) {
  auto const path = ::testing::TempDir() + "weft_group_perf.json";
  std::remove(path.c_str());
  auto const outcome =
      run("group_perf -t 2 --rounds 1 -n 3 --parts 1K,2K --fuse-bytes 1M --judge-from 1M --gradients 0 --json " + path);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("3 reduce_scatters of 2048 B parts"), std::string::npos) << outcome.output;
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines)
    EXPECT_EQ(nlohmann::json::parse(line)["program"], "group_perf") << line;
  EXPECT_EQ(lines, 4);  // two sizes, in both kinds of memory
  std::remove(path.c_str());
}

TEST(BarrierPerf, JudgesTheBarrierByTheFlags) {
  std::string const quick = "barrier_perf -t 2 --rounds 1 -n 20 --at-most ";
  auto const held = run(quick + "0");
  EXPECT_EQ(held.code, 0) << held.output;
  EXPECT_NE(held.output.find("barrier over flags: "), std::string::npos) << held.output;
  auto const missed = run(quick + "1e-9");  // more than whatever held the flags up
  EXPECT_EQ(missed.code, 1) << missed.output;
}

TEST(Programs, JudgeTheAverageByNcclTestsVariable) {
  auto const path = ::testing::TempDir() + "weft_perf_judged.json";
  auto const judged = [&](char const* wanted) {
    setenv("NCCL_TESTS_MIN_BW", wanted, 1);
    auto outcome = run("all_reduce_perf -t 2 -b 64 -e 64 -n 1 --rounds 1 -J " + path);
    unsetenv("NCCL_TESTS_MIN_BW");
    return outcome;
  };
  auto const held = judged("1e-9");
  EXPECT_EQ(held.code, 0) << held.output;
  EXPECT_TRUE(std::regex_search(held.output, std::regex("# Avg bus bandwidth    : [0-9.e+-]+ OK\n"))) << held.output;
  EXPECT_EQ(document_at(path)["average_bus_bandwidth"]["okay"], "true");
  auto const missed = judged("1e9");
  EXPECT_EQ(missed.code, 1) << missed.output;
  EXPECT_TRUE(std::regex_search(missed.output, std::regex("# Avg bus bandwidth    : [0-9.e+-]+ FAILED\n")))
      << missed.output;
  EXPECT_EQ(document_at(path)["average_bus_bandwidth"]["okay"], "false");
}

TEST(Programs, RefuseABandwidthThatIsNone) {
  for (char const* const value : {"", "fast", "0", "-1", "10GB", "nan", "inf"}) {
    setenv("NCCL_TESTS_MIN_BW", value, 1);
    auto const outcome = run("all_reduce_perf -t 2 -b 8 -e 8", true);
    unsetenv("NCCL_TESTS_MIN_BW");
    EXPECT_EQ(outcome.code, 2) << value;
    EXPECT_EQ(outcome.output,
              "all_reduce_perf: NCCL_TESTS_MIN_BW=" + std::string(value) + ": expected a positive number (GB/s)\n");
  }
}

TEST(Programs, LeaveWithTwoForABadVariable) {
  setenv("WEFT_BIND", "yes", 1);
  auto const outcome = run("all_reduce_perf -t 2 -b 8 -e 8", true);
  unsetenv("WEFT_BIND");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.output, "all_reduce_perf: WEFT_BIND=yes: expected 0 or 1\n");
}

TEST(Programs, RefuseWishesForCanariesThatAreNone) {
  for (std::string const variable : {"WEFT_PERF_BARRIER_US", "WEFT_PERF_WORK_US"}) {
    for (char const* const value : {"near", "0", "-1", "0.07us", "nan", "inf"}) {
      setenv(variable.c_str(), value, 1);
      auto const outcome = run("all_reduce_perf -t 2 -b 8 -e 8", true);
      unsetenv(variable.c_str());
      EXPECT_EQ(outcome.code, 2) << value;
      EXPECT_EQ(outcome.output,
                "all_reduce_perf: " + variable + "=" + value + ": expected microseconds above 0 and up to 1000000\n");
    }
  }
}

// What fits L2 is bound by arithmetic, so even an impossible bar is not held against it.
TEST(AdamwPerf, JudgesWhatTheCachesCannotHold) {
  std::string const quick = "adamw_perf --round-ms 1 ";
  auto const small = run(quick + "-n 64 --min-ratio 10 --rounds 1");
  EXPECT_EQ(small.code, 0) << small.output;
  EXPECT_NE(small.output.find("not judged: fits the caches\n"), std::string::npos) << small.output;

  auto const judged =
      run(quick + "-n 64 --min-ratio 10 --judge-from 64 --rounds 15");  // a median, not one that was held up
  EXPECT_EQ(judged.code, 1) << judged.output;
  EXPECT_NE(judged.output.find("  FAIL\n"), std::string::npos) << judged.output;

  auto const large = run(quick + "-n 20000000 --min-ratio 1e-9 --rounds 1");
  EXPECT_EQ(large.code, 0) << large.output;
  EXPECT_NE(large.output.find("  PASS\n"), std::string::npos) << large.output;
  EXPECT_EQ(large.output.find("not judged"), std::string::npos) << large.output;
}

TEST(Programs, AnswerUnknownOptionsWithTheirUsage) {
  auto const outcome = run("all_reduce_perf --bogus", true);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.output.find("--bogus"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("--stepfactor"), std::string::npos) << outcome.output;
  auto const value = run("all_reduce_perf -Q 3", true);
  EXPECT_EQ(value.output.rfind("all_reduce_perf: not known: -Q 3\n", 0), 0U) << value.output;
}

TEST(Programs, SayWhatTheyAre) {
  EXPECT_EQ(run("all_reduce_perf --help").code, 0);
  EXPECT_NE(run("all_reduce_perf --help").output.find("--stepfactor"), std::string::npos);
  // `all` is what scripts for nccl-tests expect; the help names what is beyond it.
  auto const help = run("all_reduce_perf --help").output;
  EXPECT_NE(help.find("all: those of nccl-tests (int8 uint8 "), std::string::npos) << help;
  EXPECT_NE(help.find("Weft's others, one at a time: c64 c128 bool i16 u16"), std::string::npos) << help;
  EXPECT_NE(help.find("Weft's others, one at a time: land lor lxor band bor bxor"), std::string::npos) << help;
  EXPECT_EQ(run("broadcast_perf --version").output.rfind("broadcast_perf (weft) ", 0), 0U);
}

}  // namespace
