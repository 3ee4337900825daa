#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/shell.hpp"
#include "weft/error.hpp"
#include "weft_simulate/prediction.hpp"
#include "weft_simulate/topology_file.hpp"

namespace weft::simulate_tool {
namespace {

test::ShellResult run(std::string const& arguments) {
  return test::run_shell(std::string("timeout 60 ") + WEFT_SIMULATE_PROGRAM + " " + arguments);
}

nlohmann::json report(std::string const& arguments) {
  auto const result = run(arguments + " --json -");  // the table goes to standard error, before
  EXPECT_EQ(result.code, 0) << result.output;
  auto const begin = result.output.find("{\n");
  return begin == std::string::npos ? nlohmann::json() : nlohmann::json::parse(result.output.substr(begin));
}

TEST(SimulateProgram, NothingIsFasterThanTheBound) {
  for (auto const name : preset_names()) {
    for (std::string const op : {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
                                 "scatter", "all_to_all", "scan", "barrier"}) {
      auto const found = report("--op " + op + " --topology " + std::string(name) + " --ranks 32 --bytes 4K,16M");
      ASSERT_FALSE(found["rows"].empty());
      for (auto const& row : found["rows"]) {
        for (auto const& point : row["algorithms"]) {
          EXPECT_GE(point["over_bound"].get<double>(), 1 - 1e-9) << name << " " << op << " " << point;
          EXPECT_LT(point["over_bound"].get<double>(), 1000) << name << " " << op << " " << point;
        }
      }
    }
  }
}

TEST(SimulateProgram, CrossoversAreWhereTheBestOneChanges) {
  auto const found = report("--topology flat --ranks 16 --bytes 64-64M");
  auto const& crossovers = found["crossovers"];
  ASSERT_GE(crossovers.size(), 2U);
  EXPECT_EQ(crossovers[0]["algorithm"], "exchange");  // the fewest steps
  for (auto const& row : found["rows"]) {
    std::string best;
    for (auto const& each : crossovers) {
      if (each["from_bytes"] <= row["bytes"]) best = each["algorithm"];
    }
    EXPECT_EQ(row["best"], best);
    for (auto const& point : row["algorithms"]) {
      if (point["name"] != row["best"]) continue;
      for (auto const& other : row["algorithms"]) EXPECT_LE(point["time_s"], other["time_s"]);
    }
  }
}

TEST(SimulateProgram, WhatWouldTakeMinutesIsLeftOutUnlessNamed) {
  auto const many = run("--ranks 3500 --op all_gather --bytes 1M");
  EXPECT_EQ(many.code, 0);
  EXPECT_NE(many.output.find("left out"), std::string::npos) << many.output;
  EXPECT_NE(many.output.find("ring; --algorithm asks for it"), std::string::npos) << many.output;
  EXPECT_EQ(report("--ranks 3500 --op all_gather --bytes 1M")["rows"][0]["algorithms"].size(), 2U);
  EXPECT_EQ(report("--ranks 64 --op all_gather --bytes 1M")["rows"][0]["algorithms"].size(), 3U);
  EXPECT_EQ(run("--ranks 3500 --op all_gather --bytes 1M --algorithm bruck").output.find("left out"),
            std::string::npos);
  EXPECT_EQ(run("--ranks 4096 --step 2x1M@1ms").output.find("left out"), std::string::npos);  // it chooses by itself
}

TEST(SimulateProgram, AStragglerAndOversubscriptionCost) {
  auto const time = [](std::string const& arguments) {
    return report("--algorithm ring --bytes 16M " + arguments)["rows"][0]["algorithms"][0]["time_s"].get<double>();
  };
  EXPECT_GT(time("--straggler 3:4"), 2 * time(""));
  EXPECT_NEAR(time("--straggler 3@10ms"), time("") + 10e-3, 1e-3);
  EXPECT_EQ(time("--jitter 5us --seed 4"), time("--jitter 5us --seed 4"));
  EXPECT_NE(time("--jitter 5us --seed 4"), time("--jitter 5us --seed 5"));
}

TEST(SimulateProgram, ALostRankFailsThoseThatNeedIt) {
  auto const ended = [](std::string const& arguments) {
    return report("--ranks 16 --bytes 64M " + arguments)["rows"][0]["algorithms"][0];
  };
  double const well = ended("--algorithm ring")["time_s"];
  // Everybody of a ring needs everybody; all others are told after the detection's time.
  auto const ring = ended("--algorithm ring --lose 7@100us --detection 3ms");
  EXPECT_EQ(ring["failed_ranks"], 15);
  EXPECT_NEAR(ring["time_s"], 3.1e-3, 1e-9);
  EXPECT_NE(ring["error"].get<std::string>().find("rank 7 was lost"), std::string::npos) << ring;
  // After the end of all nothing is lost.
  auto const late = ended("--algorithm ring --lose 7@1s");
  EXPECT_FALSE(late.contains("failed_ranks"));
  EXPECT_EQ(late["time_s"], well);
  auto const told = run("--ranks 16 --bytes 64M --algorithm ring --lose 7@1s");
  EXPECT_NE(told.output.find("all calls end before the first is lost"), std::string::npos) << told.output;
  auto const row = report("--ranks 16 --bytes 1M --algorithm ring,double_tree --lose 0@1us")["rows"][0];
  EXPECT_TRUE(row["best"].is_null()) << row;
}

TEST(SimulateProgram, AStepHidesWhatItCan) {
  auto const hidden = report("--step 10x1M@4ms --bucket 1M --ranks 4 --topology flat");
  EXPECT_NEAR(hidden["compute_ms"], 60, 1e-3);
  EXPECT_EQ(hidden["buckets"].size(), 10U);
  EXPECT_GT(hidden["hidden_ms"], 8 * hidden["exposed_ms"].get<double>());
  auto const exposed = report("--step 10x1M@4ms --bucket 1M --ranks 4 --topology flat --no-overlap");
  EXPECT_NEAR(exposed["hidden_ms"], 0, 1e-6);
  EXPECT_NEAR(exposed["step_ms"], 60 + exposed["communication_ms"].get<double>(), 1e-3);
  // The others wait for a straggler, whose own communication is the shortest.
  auto const slow = report("--step 10x1M@4ms --ranks 4 --straggler 2:1.5");
  EXPECT_GT(slow["step_ms"], 90);
  EXPECT_EQ(slow["slowest_rank"], 2);
  EXPECT_EQ(report("--step 3x64K@1ms --ranks 16 --jitter 9us --seed 4"),
            report("--step 3x64K@1ms --ranks 16 --jitter 9us --seed 4"));
}

TEST(SimulateProgram, BoundsAreThoseOfTheNarrowestBorder) {
  auto topology = sim::Topology::flat(8, {1e-6, 1e9});
  EXPECT_DOUBLE_EQ(bound_s(topology, Operation::all_reduce, 8e6), 1e-6 + 14e-3);
  EXPECT_DOUBLE_EQ(bound_s(topology, Operation::broadcast, 8e6), 1e-6 + 8e-3);
  topology.ranks_per_host = 4;
  topology.inside = {1e-6, 100e9};
  topology.shared_nic = true;
  EXPECT_DOUBLE_EQ(bound_s(topology, Operation::all_reduce, 8e6), 1e-6 + 8e-3);
  EXPECT_DOUBLE_EQ(bound_s(topology, Operation::all_to_all, 8e6), 1e-6 + 16e-3);
}

TEST(SimulateProgram, ReadsTopologies) {
  auto const path = std::filesystem::temp_directory_path() / "weft_topology_test.json";
  std::ofstream(path)
      << R"({"preset": "nvlink", "ranks": 16, "between": {"latency": "8us", "bandwidth": 1e9}, "shared_nic": true})";
  auto const topology = read_topology(path.string());
  EXPECT_EQ(topology.ranks, 16);
  EXPECT_EQ(topology.ranks_per_host, 8);
  EXPECT_DOUBLE_EQ(topology.between.latency_s, 8e-6);
  EXPECT_TRUE(topology.shared_nic);
  for (auto const* text : {"[]", "{", R"({"rank": 4})", R"({"ranks": 1.5})", R"({"ranks": "4"})", R"({"between": 5})",
                           R"({"between": {"latency": "5"}})", R"({"preset": "ring"})", R"({"rails": 1})"}) {
    std::ofstream(path) << text;
    EXPECT_THROW(static_cast<void>(read_topology(path.string())), Error) << text;
    EXPECT_EQ(run("--topology " + path.string()).code, 2) << text;
  }
  std::ofstream(path) << R"({"ranks": )" << std::string(300'000, '[') << std::string(300'000, ']') << "}";
  auto const deep = run("--topology " + path.string());
  EXPECT_EQ(deep.code, 2) << deep.output;
  std::ofstream(path) << R"({"ranks": 4, "between": {"bandwidth": 1}})";  // meant in GB/s
  auto const slow = run("--bytes 64M --topology " + path.string());
  EXPECT_EQ(slow.code, 2);
  EXPECT_NE(slow.output.find("bandwidths are in bytes per second"), std::string::npos) << slow.output;
  std::filesystem::remove(path);
}

TEST(SimulateProgram, BadInputIsExplained) {
  struct Bad {
    char const* arguments;
    char const* says;
  };
  for (auto const& [arguments, says] : {Bad{"--op sum", "there is no \"sum\""},
                                        {"--algorithm fast", "has no \"fast\""},
                                        {"--topology torus", "neither a file"},
                                        {"--topology /", "neither a file"},
                                        {"--ranks 1", "--ranks"},
                                        {"--ranks 100000", "--ranks"},
                                        {"--bytes 0", "no size"},
                                        {"--bytes 8-", "no size"},
                                        {"--bytes -1", "\"-1\" is no size"},
                                        {"--bytes 8-", "\"8-\" is no size"},
                                        {"--seed -1", "\"-1\" is no whole number from 0"},
                                        {"--seed 18446744073709551616", "is no whole number from 0"},
                                        {"--straggler 1:2,3:2,1:4", "--straggler: rank 1 is named twice"},
                                        {"--lose 1@1ms,1@2ms", "--lose: rank 1 is named twice"},
                                        {"--ranks 2 --lose 0@0s,1@0s", "one at least has to be left"},
                                        {"--json a.png --plot ./a.png", "--plot would overwrite what --json names"},
                                        {"--bytes 2K-1K", "ends before it begins"},
                                        {"--bytes 1X", "no size"},
                                        {"--straggler 3", "not like 17:2"},
                                        {"--straggler 99:2", "straggler 99"},
                                        {"--straggler 1:0.5", "not like 17:2"},
                                        {"--jitter 5", "no time"},
                                        {"--lose 3", "not like 17@5ms"},
                                        {"--lose 3:2@1ms", "not like 17@5ms"},
                                        {"--lose 99@1ms", "no rank 99; ranks are 0 to"},
                                        {"--lose 1@1ms --plot a.png", "leave out --lose"},
                                        {"--detection 1ms", "--lose"},
                                        {"--chunk none", "no size"},
                                        {"--plot a.jpg", "has to end in .png"},
                                        {"--json /nowhere/a.json", "cannot be written"},
                                        {"--topology nvlink --ranks 12", "ranks_per_host is 8"},
                                        {"--step 3", "not like 24x12M@8ms"},
                                        {"--step 0x1M@1ms", "not like 24x12M@8ms"},
                                        {"--step 3x1@1ms", "4 bytes or more"},
                                        {"--step 3x1M@1", "no time"},
                                        {"--step 3x1M@1ms --op broadcast", "excludes"},
                                        {"--step 3x1M@1ms --plot a.png", "not for --step"},
                                        {"--step 3x1M@1ms --straggler 1@5ms", "begin together"},
                                        {"--no-overlap", "--step"},
                                        {"--bytes=", "TEXT missing"},
                                        {"--topology ''", "an empty value"},
                                        {"--step ''", "an empty value"},
                                        {"--reduction nan", "no finite number"},
                                        {"--ranks 4 --bytes 1G --straggler 1:9e8", "more than the 100 days"},
                                        {"--ranks 4 --step 10000x4@90000s", "more than the 100 days"},
                                        {"--ranks 4 --step 4x1M@1ms --reduction 1e-9", "more than the 100 days"},
                                        {"--ranks 2 --bytes 8 --json /dev/full", "cannot be written: No space"},
                                        {"--nonsense", "nonsense"}}) {
    auto const result = run(arguments);
    EXPECT_EQ(result.code, 2) << arguments << ": " << result.output;
    EXPECT_NE(result.output.find(says), std::string::npos) << arguments << ": " << result.output;
  }
  auto const full = test::run_shell(std::string("(timeout 60 ") + WEFT_SIMULATE_PROGRAM + " --bytes 8 > /dev/full)");
  EXPECT_EQ(full.code, 2);
  EXPECT_NE(full.output.find("standard output: cannot be written: No space"), std::string::npos) << full.output;
  EXPECT_EQ(run("--ranks 2 --bytes 8 --seed 18446744073709551615").code, 0);
  EXPECT_NE(run("--help").output.find("neither for --step"), std::string::npos);
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_NE(run("--version").output.find("weft-simulate (weft) "), std::string::npos);
}

TEST(SimulateProgram, Draws) {
  if (test::run_shell("/usr/bin/python3 -c 'import matplotlib' || python3 -c 'import matplotlib'").code != 0)
    GTEST_SKIP() << "no matplotlib";
  auto const path = std::filesystem::temp_directory_path() / "weft_simulation_test.png";
  std::filesystem::remove(path);
  auto const result = run("--ranks 4 --bytes 1K,1M --plot " + path.string());
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

TEST(SimulateProgram, WhatCannotBeDrawnIsToldFirst) {
  auto const program = std::filesystem::temp_directory_path() / ("weft-simulate-" + std::to_string(getpid()));
  std::filesystem::copy_file(WEFT_SIMULATE_PROGRAM, program);  // far from any script
  auto const result = test::run_shell(program.string() + " --ranks 4 --bytes 1K --plot " + program.string() + ".png");
  std::filesystem::remove(program);
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.output.find("--plot: there is no plot_simulation.py"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("KiB"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace weft::simulate_tool
