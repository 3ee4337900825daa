#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "harness/shell.hpp"

namespace weft::test {
namespace {

constexpr char const* kTable = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";

class WeftMemory : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("weft-memory-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream(file("in.csv")) << kTable;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file(std::string const& name) const { return (folder_ / name).string(); }
  [[nodiscard]] static ShellResult run(std::string const& arguments) {
    return run_shell("timeout 60 " WEFT_MEMORY_PROGRAM " " + arguments);
  }
  [[nodiscard]] std::string read(std::string const& name) const {
    std::ifstream in(file(name));
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(WeftMemory, WritesTheTableWithOffsets) {
  auto const result = run(file("in.csv") + " --capacity 12 -o " + file("out.csv") + " --json " + file("out.json"));
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("5 buffers, most live 12 bytes, plan 12 bytes (1.0000x)"), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("fits"), std::string::npos) << result.output;
  std::string const table = read("out.csv");
  EXPECT_EQ(table.rfind("id,lower,upper,size,offset\nb1,0,3,4,", 0), 0U) << table;
  auto const json = nlohmann::json::parse(read("out.json"));
  EXPECT_EQ(json.at("plan_bytes"), 12);
  EXPECT_EQ(json.at("least_bytes"), 12);
  EXPECT_EQ(json.at("verdict"), "fits");
}

TEST_F(WeftMemory, ReadsAndWritesStandardStreams) {
  auto const result = run_shell("(timeout 60 " WEFT_MEMORY_PROGRAM " - -o - 2> /dev/null < " + file("in.csv") + ")");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output.rfind("id,lower,upper,size,offset\n", 0), 0U) << result.output;
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 6) << result.output;
}

TEST_F(WeftMemory, SaysThatNothingFits) {
  auto const result = run(file("in.csv") + " --capacity 11");
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.output.find("cannot fit"), std::string::npos) << result.output;
}

TEST_F(WeftMemory, CapacitiesHaveUnits) {
  EXPECT_NE(run(file("in.csv") + " --capacity 1K").output.find("fits"), std::string::npos);
}

TEST_F(WeftMemory, PlansAGraphsOrderAndItsTableCanBeReadAgain) {
  // Two branches of 100 bytes that are made first and reduced to 1 byte each: one after the other is best.
  std::ofstream(file("graph.json")) << R"({"weft_graph": 1, "name": "branches", "tensors": [
    {"name": "a", "bytes": 100}, {"name": "b", "bytes": 100}, {"name": "x", "bytes": 1}, {"name": "y", "bytes": 1}],
    "ops": [{"name": "makeA", "kind": "compute", "writes": ["a"]}, {"name": "makeB", "kind": "compute", "writes": ["b"]},
      {"name": "useA", "kind": "compute", "reads": ["a"], "writes": ["x"]}, {"name": "useB", "kind": "compute", "reads": ["b"], "writes": ["y"]},
      {"name": "join", "kind": "compute", "reads": ["x", "y"]}]})";
  auto const result = run(file("graph.json") + " --alignment 1 -o " + file("out.csv") + " --json " + file("out.json"));
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("the best there is"), std::string::npos) << result.output;
  auto const json = nlohmann::json::parse(read("out.json"));
  EXPECT_EQ(json.at("bound_bytes"), 102);
  EXPECT_EQ(json.at("orders").at(0).at("name"), "weft");
  EXPECT_EQ(json.at("orders").at(0).at("live_bytes"), 102);
  EXPECT_EQ(json.at("orders").at(0).at("plan_bytes"), 102);
  EXPECT_EQ(json.at("orders").at(1).at("name"), "program");
  EXPECT_EQ(json.at("orders").at(1).at("live_bytes"), 201);
  // Small requests share a segment.
  EXPECT_EQ(json.at("orders").at(1).at("caching_bytes"), 2 << 20);
  auto const again = run(file("out.csv") + " --capacity 102");
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_NE(again.output.find("4 buffers, most live 102 bytes"), std::string::npos) << again.output;
  EXPECT_NE(run(file("graph.json") + " --capacity 101").output.find("no order fits"), std::string::npos);
  EXPECT_EQ(run(file("graph.json") + " --capacity 101").code, 1);
}

TEST_F(WeftMemory, PlansATransformer) {
  auto const result = run("--model gpt2-small --sequence 512 --time-limit 1 --capacity 40G --json " + file("out.json"));
  EXPECT_EQ(result.code, 0) << result.output;
  auto const json = nlohmann::json::parse(read("out.json"));
  std::int64_t const weft = json.at("orders").at(0).at("live_bytes");
  EXPECT_EQ(json.at("verdict"), "fits");
  for (auto const& order : json.at("orders")) {
    EXPECT_LE(weft, order.at("live_bytes").get<std::int64_t>()) << order;
    EXPECT_LE(order.at("live_bytes").get<std::int64_t>(), order.at("caching_bytes").get<std::int64_t>()) << order;
  }
}

TEST_F(WeftMemory, AlignsWhatATableSaysNothingOfOrTooLittle) {
  ASSERT_EQ(run(file("in.csv") + " --alignment 8 --json " + file("out.json")).code, 0);
  EXPECT_EQ(nlohmann::json::parse(read("out.json")).at("plan_bytes"), 20);
  std::ofstream(file("aligned.csv")) << "id,lower,upper,size,alignment\nb1,0,3,1,6\nb2,0,3,1,6\n";
  ASSERT_EQ(run(file("aligned.csv") + " --alignment 4 --json " + file("out.json")).code, 0);
  EXPECT_EQ(nlohmann::json::parse(read("out.json")).at("plan_bytes"), 13);  // of both: 12
}

constexpr char const* kSmallTrace = WEFT_SOURCE_DIR "/tests/importers/data/chakra_ddp.json";

TEST_F(WeftMemory, EndsOnceOffsetsReachWhatTheirAlignmentTakes) {
  // Buffers of a few bytes, none of which lies where its alignment does not let it.
  auto const result = run(std::string(kSmallTrace) + " --time-limit 50");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_LT(result.elapsed.count(), 40);
  EXPECT_NE(result.output.find("live MB    offsets MB"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find(" 0.418 "), std::string::npos) << result.output;
}

TEST_F(WeftMemory, TheTimeLimitIsOfAllOrdersTogether) {
  ASSERT_EQ(run(std::string(kSmallTrace) + " --json " + file("out.json")).code, 0);
  std::int64_t const live = nlohmann::json::parse(read("out.json")).at("orders").at(0).at("live_bytes");
  // No offsets are known to fit, so that every order's search takes what time it has.
  auto const result =
      run(std::string(kSmallTrace) + " --capacity " + std::to_string(live) + " --time-limit 4 --threads 1");
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_NE(result.output.find("not found"), std::string::npos) << result.output;
  EXPECT_LT(result.elapsed.count(), 12) << result.output;
}

TEST_F(WeftMemory, BadInputIsOneLineAndExitCodeTwo) {
  std::ofstream(file("short.csv")) << "id,lower,upper,size\nb1,0,3\n";
  std::ofstream(file("negative.csv")) << "id,lower,upper,size\nb1,3,0,4\n";
  std::ofstream(file("much.csv")) << "id,lower,upper,size\nb1,0,3,4\nb2,0,3,4611686018427387904\n";
  struct Case {
    std::string arguments;
    char const* words;
  };
  for (auto const& [arguments, words] :
       {Case{file("absent.csv"), "cannot be opened"}, Case{file("short.csv"), "short.csv:2: 3 fields for 4 columns"},
        Case{file("negative.csv"), "buffer 0 (b1): a life from 3 to 0 ends before it begins"},
        Case{file("negative.csv"), "negative.csv:2: "}, Case{file("much.csv"), "much.csv:3: "},
        Case{file(""), "is a directory"},
        Case{file("in.csv") + " -o /nowhere/out.csv", "/nowhere/out.csv: cannot be written"},
        Case{file("in.csv") + " -o " + file("in.csv"), "--output would overwrite what the input names"},
        Case{file("in.csv") + " --json " + file("./in.csv"), "--json would overwrite what the input names"},
        Case{file("in.csv") + " --json " + file("out") + " -o " + file("./out"),
             "--json would overwrite what --output names"},
        Case{file("in.csv") + " --json - -o -", "--output and --json cannot both be standard output"}}) {
    auto const result = run(arguments);
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_NE(result.output.find("weft-memory: "), std::string::npos) << result.output;
    EXPECT_NE(result.output.find(words), std::string::npos) << result.output;
  }
  EXPECT_EQ(run("").code, 2);
  EXPECT_EQ(read("in.csv"), kTable);
  EXPECT_EQ(run(file("in.csv") + " --capacity soon").code, 2);
  auto const endless = run(file("in.csv") + " --time-limit nan");
  EXPECT_EQ(endless.code, 2);
  EXPECT_NE(endless.output.find("no finite number"), std::string::npos) << endless.output;
  EXPECT_EQ(run("--what").code, 2);
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_NE(run("--version").output.find("weft-memory (weft) "), std::string::npos);
}

}  // namespace
}  // namespace weft::test
