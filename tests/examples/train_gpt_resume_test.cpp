#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "program.hpp"

// Sharded checkpoints of the program: any ranks and strategies continue what any others began.

namespace weft::test {
namespace {

constexpr int kSteps = 40;
constexpr int kSaved = 24;

std::vector<double> losses_of(TemporaryFolder const& folder, std::string const& arguments) {
  ProgramResult const result = run_train_gpt(
      "--layers 2 --width 32 --heads 2 --seq 16 --batch 12 --lr 0.003 --sample 0 "
      "--report-json " +
      folder.file("report") + " " + arguments + small_buckets(arguments));
  EXPECT_EQ(result.code, 0) << arguments << ": " << result.error;
  if (result.code != 0) return {};
  return nlohmann::json::parse(read_file(folder.file("report")))["runs"][0]["losses"];
}

std::string run_of(std::string const& strategy, int ranks, int steps) {
  return "--strategy " + strategy + " --ranks " + std::to_string(ranks) + " --steps " + std::to_string(steps);
}

class Resumed : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(TrainGptResume, Resumed, testing::Values("ddp", "zero2", "zero3"),
                         [](auto const& strategy) { return strategy.param; });

TEST_P(Resumed, FollowTheUninterruptedRunAtAnyRanksUnderAnyStrategy) {
  TemporaryFolder const folder;
  std::string const checkpoint = folder.file("ck");
  std::vector<double> const straight = losses_of(folder, run_of(GetParam(), 4, kSteps));
  ASSERT_EQ(straight.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(straight.back(), 0.9 * straight.front());
  (void)losses_of(folder, run_of(GetParam(), 4, kSaved) + " --checkpoint " + checkpoint + " --checkpoint-every 5");
  struct Rest {
    std::string strategy;
    int ranks;
  };
  for (auto const& [strategy, ranks] :
       {Rest{"zero3", 2}, Rest{"ddp", 3}, Rest{"zero2", 3}, Rest{"hsdp", 4}, Rest{"zero1", 4}}) {
    std::vector<double> const rest = losses_of(folder, run_of(strategy, ranks, kSteps) + " --resume " + checkpoint);
    ASSERT_EQ(rest.size(), static_cast<std::size_t>(kSteps - kSaved)) << strategy << " at " << ranks;
    for (std::size_t step = 0; step < rest.size(); ++step) {
      double const expected = straight[static_cast<std::size_t>(kSaved) + step];
      EXPECT_NEAR(rest[step], expected, ranks == 4 ? 0 : 1e-4 * expected)
          << strategy << " at " << ranks << ", step " << step;
    }
  }
}

TEST(TrainGptResume, SixteenBitsAndOverflowsContinueWithEqualBits) {
  for (std::string const options :
       {" --precision bf16 --optimizer lion", " --precision fp16 --loss-scale 1e30 --clip 1",
        " --state 8bit --accumulate 3 --optimizer adagrad"}) {
    TemporaryFolder const folder;
    std::vector<double> const straight = losses_of(folder, run_of("zero1", 2, kSteps) + options);
    (void)losses_of(folder, run_of("zero1", 2, kSaved) + options + " --checkpoint " + folder.file("ck"));
    std::vector<double> const rest =
        losses_of(folder, run_of("zero1", 2, kSteps) + options + " --resume " + folder.file("ck"));
    ASSERT_EQ(straight.size(), static_cast<std::size_t>(kSteps)) << options;
    EXPECT_EQ(rest, std::vector<double>(straight.begin() + kSaved, straight.end())) << options;
  }
}

// What is left out is the checkpoint's, and is not first checked as if it were the default.
TEST(TrainGptResume, WhatTheCheckpointSaysCanBeLeftOut) {
  TemporaryFolder const folder;
  std::string const saved = folder.file("saved");
  ASSERT_EQ(run_train_gpt("--layers 1 --width 36 --heads 6 --seq 8 --batch 9 --ranks 3 --steps 4 --decay cosine "
                          "--warmup 2 --sample 0 --save " +
                          saved)
                .code,
            0);
  for (char const* const said : {"", " --width 36", " --decay cosine", " --batch 9"}) {
    ProgramResult const result = run_train_gpt("--ranks 3 --steps 6 --sample 0 --resume " + saved + said);
    EXPECT_EQ(result.code, 0) << said << ": " << result.error;
  }
  ProgramResult const refused = run_train_gpt("--ranks 2 --steps 6 --sample 0 --resume " + saved);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.error.find("--batch 9 cannot be shared equally by 2 ranks"), std::string::npos) << refused.error;
}

// A run that is ended anywhere continues from its last checkpoint.
TEST(TrainGptResume, AnEndedRunContinues) {
  TemporaryFolder const folder;
  std::string const checkpoint = " --checkpoint " + folder.file("ck");
  // Longer where nothing was saved yet, as on a machine that is busy.
  for (int limit = 1; !std::filesystem::exists(folder.file("ck/model.safetensors.index.json")); limit *= 4) {
    ASSERT_LT(limit, 100);
    ProgramResult const ended = run_train_gpt(
        "--layers 2 --width 32 --heads 2 --seq 16 --batch 12 --lr 0.003 --sample 0 --checkpoint-every 3 " +
            run_of("zero2", 3, 1'000'000) + checkpoint,
        limit);
    ASSERT_EQ(ended.code, 124) << ended.error;
  }
  auto const index = nlohmann::json::parse(read_file(folder.file("ck/model.safetensors.index.json")));
  int const step = index["weft"]["step"];
  ASSERT_EQ(step % 3, 0);
  std::vector<double> const straight = losses_of(folder, run_of("zero2", 3, step + 10));
  std::vector<double> const rest = losses_of(folder, run_of("zero2", 3, step + 10) + " --resume " + folder.file("ck"));
  ASSERT_EQ(straight.size(), static_cast<std::size_t>(step + 10));
  EXPECT_EQ(rest, std::vector<double>(straight.begin() + step, straight.end()));
}

TEST(TrainGptResume, AnotherRunsCheckpointIsNotReplaced) {
  TemporaryFolder const folder;
  std::string const run = "--layers 1 --width 16 --heads 1 --seq 8 --batch 2 --ranks 2 --sample 0 --strategy zero2 ";
  std::string const to = " --checkpoint " + folder.file("ck");
  auto const index = [&](std::string const& name) {
    return read_file(folder.file(name + "/model.safetensors.index.json"));
  };
  ASSERT_EQ(run_train_gpt(run + "--steps 3" + to).code, 0);
  ASSERT_EQ(run_train_gpt(run + "--steps 3 --checkpoint " + folder.file("other")).code, 0);
  std::string const saved = index("ck");
  for (std::string const& other : {std::string("--steps 5"), "--steps 5 --resume " + folder.file("other")}) {
    ProgramResult const refused = run_train_gpt(run + other + to);
    EXPECT_EQ(refused.code, 2) << other;
    EXPECT_EQ(refused.out, "") << other;
    EXPECT_EQ(std::ranges::count(refused.error, '\n'), 1) << refused.error;
    for (std::string const& named : {folder.file("ck"), std::string("3 steps under zero2 at 2 ranks"),
                                     std::string("--resume"), std::string("--overwrite-checkpoint")}) {
      EXPECT_NE(refused.error.find(named), std::string::npos) << named << ": " << refused.error;
    }
    EXPECT_EQ(index("ck"), saved) << other;
  }
  EXPECT_EQ(run_train_gpt(run + "--steps 5 --resume " + folder.file("ck/../ck") + to).code, 0);
  EXPECT_NE(index("ck"), saved);
  EXPECT_EQ(run_train_gpt(run + "--steps 2 --overwrite-checkpoint" + to).code, 0);
  EXPECT_EQ(nlohmann::json::parse(index("ck"))["weft"]["step"], 2);
}

TEST(TrainGptResume, BadFoldersAreOneLine) {
  TemporaryFolder const folder;
  std::filesystem::create_directory(folder.file("empty"));
  std::ofstream(folder.file("file")) << "x";
  std::string const model = "--layers 1 --width 16 --heads 1 --seq 8 --batch 2 --ranks 2 --sample 0 ";
  ASSERT_EQ(run_train_gpt(model + "--steps 1 --checkpoint " + folder.file("damaged")).code, 0);
  std::string const index = "/model.safetensors.index.json";
  std::filesystem::create_directory(folder.file("foreign"));
  std::ofstream(folder.file("foreign") + index) << R"({"metadata": {}, "weight_map": {}})";
  std::filesystem::copy(folder.file("damaged"), folder.file("values"), std::filesystem::copy_options::recursive);
  for (auto const& entry : std::filesystem::recursive_directory_iterator(folder.file("values"))) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end).put('\x55');
  }
  std::filesystem::resize_file(folder.file("damaged") + index, 100);
  struct Bad {
    std::string arguments;
    int code;
    std::string expected;
  };
  for (auto const& [arguments, code, expected] : std::vector<Bad>{
           {"--resume " + folder.file("empty"), 1, "model.safetensors.index.json"},
           {"--resume " + folder.file("damaged"), 1, "from a copy"},
           {"--resume " + folder.file("values"), 1, "the file is damaged"},
           {"--resume " + folder.file("foreign"), 1, "not written by Weft"},
           {"--checkpoint " + folder.file("foreign"), 2, "another folder"},
           {"--checkpoint " + folder.file("damaged"), 2, "another folder"},
           {"--checkpoint " + folder.file("file/ck"), 1, "cannot create"},
           {"--checkpoint " + folder.file("file"), 1, "cannot create"},
           {"--checkpoint-every 3", 2, "--checkpoint"},
           {"--checkpoint x --compare", 2, "--compare"},
       }) {
    ProgramResult const result = run_train_gpt(model + "--steps 2 " + arguments);
    EXPECT_EQ(result.code, code) << arguments << result.error;
    EXPECT_EQ(std::ranges::count(result.error, '\n'), 1) << arguments << ": " << result.error;
    EXPECT_NE(result.error.find(expected), std::string::npos) << arguments << ": " << result.error;
  }
}

}  // namespace
}  // namespace weft::test
