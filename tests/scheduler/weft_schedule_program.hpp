#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "harness/sanitizers.hpp"
#include "harness/shell.hpp"
#include "scheduler/random_graph.hpp"
#include "weft/op_graph_json.hpp"

namespace weft::test {

using Json = nlohmann::ordered_json;

/// Runs the programs in a folder of the test's own.
class WeftSchedule : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("weft-schedule-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream cluster(file("unit.json"));
    write_cluster(unit_cluster(0.5), cluster);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file(std::string const& name) const { return (folder_ / name).string(); }
  /// Under sanitizers a search of seconds takes a minute; what it does is the same from the first plans on.
  [[nodiscard]] static ShellResult run(std::string const& arguments) {
    bool const searches =
        arguments.find("--model") != std::string::npos && arguments.find("--time-limit") == std::string::npos;
    return run_shell("timeout 100 " WEFT_SCHEDULE_PROGRAM " " + arguments +
                     (kSanitized && searches ? " --time-limit 2" : ""));
  }
  [[nodiscard]] ShellResult check(std::string const& graph, std::string const& plan) const {
    return run_shell("timeout 100 python3 " WEFT_SOURCE_DIR "/tools/check_plan.py " + file(graph) + " " + file(plan));
  }
  [[nodiscard]] Json read(std::string const& name) const {
    std::ifstream in(file(name));
    return Json::parse(in);
  }
  void write(std::string const& name, Json const& json) const { std::ofstream(file(name)) << json; }
  void write_random_graph(std::string const& name, unsigned seed) const {
    std::mt19937 random(seed);
    std::ofstream out(file(name));
    write_graph(random_graph(random, {.ops = 5 + random() % 40}), out);
  }
  /// Plans, and has the checker confirm it.
  void expect_checked(std::string const& arguments) const {
    SCOPED_TRACE(arguments);
    auto const result = run(arguments + " --graph-out " + file("g.json") + " --plan " + file("p.json"));
    ASSERT_EQ(result.code, 0) << result.output;
    auto const checked = check("g.json", "p.json");
    EXPECT_EQ(checked.code, 0) << checked.output;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace weft::test
