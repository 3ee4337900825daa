#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "program.hpp"

// What each rank of the program keeps in memory, and that a budget holds.

namespace weft::test {
namespace {

using Json = nlohmann::json;

constexpr int kRanks = 4;
constexpr double kMiB = 1 << 20;

std::string run_of(std::string const& strategy, std::string const& size = "--layers 6 --width 256") {
  return "--ranks 4 --steps 3 --sample 0 --seq 16 --batch 4 " + size + " --strategy " + strategy;
}

Json report_of(std::string const& arguments) {
  TemporaryFolder const folder;
  ProgramResult const result = run_train_gpt(arguments + " --report-json " + folder.file("report"));
  EXPECT_EQ(result.code, 0) << arguments << ": " << result.error;
  if (result.code != 0) return {};
  for (char const* word : {"memory, MiB", "optimizer states", "activations"}) {
    EXPECT_NE(result.out.find(word), std::string::npos) << word;
  }
  return Json::parse(read_file(folder.file("report")));
}

struct Keeps {
  std::string strategy;
  double parameters;  ///< bytes of a parameter
  double gradients;
  double states;
};

TEST(TrainGptMemory, IsWhatTheoryGivesEachStrategyWithinTwoPercent) {
  for (Keeps const& keeps :
       {Keeps{"ddp", 4, 4, 8}, Keeps{"zero1", 4, 4, 8.0 / kRanks}, Keeps{"zero2", 4, 4.0 / kRanks, 8.0 / kRanks},
        Keeps{"zero3", 4.0 / kRanks, 4.0 / kRanks, 8.0 / kRanks}, Keeps{"hsdp", 2, 2, 4},
        Keeps{"zero3 --precision bf16", 2.0 / kRanks, 2.0 / kRanks, 12.0 / kRanks},
        Keeps{"ddp --precision bf16 --optimizer lion", 2, 2, 8}}) {
    Json const report = report_of(run_of(keeps.strategy, "--layers 2 --width 128"));
    double const count = report["model"]["parameters"];
    ASSERT_EQ(report["memory"].size(), static_cast<std::size_t>(kRanks));
    for (Json const& rank : report["memory"]) {
      EXPECT_NEAR(rank["parameters"]["live"], count * keeps.parameters, 0.02 * count * keeps.parameters)
          << keeps.strategy;
      EXPECT_NEAR(rank["gradients"]["live"], count * keeps.gradients, 0.02 * count * keeps.gradients) << keeps.strategy;
      EXPECT_NEAR(rank["optimizer states"]["live"], count * keeps.states, 0.02 * count * keeps.states)
          << keeps.strategy;
      EXPECT_GT(rank["activations"]["live"], 0) << keeps.strategy;
      EXPECT_GE(rank["all"]["peak"], rank["all"]["live"]) << keeps.strategy;
    }
  }
}

TEST(TrainGptMemory, FullyShardedTrainsWhereDdpExceedsTheBudget) {
  std::string const budget = " --memory-budget 72M";
  ProgramResult const ddp = run_train_gpt(run_of("ddp") + budget);
  EXPECT_EQ(ddp.code, 1);
  for (char const* part : {"memory budget of 72.0 MiB", "MiB of optimizer states do not fit", "parameters 18.6",
                           "gradients 18.6", "activations 1.7"}) {
    EXPECT_NE(ddp.error.find(part), std::string::npos) << part << ": " << ddp.error;
  }
  Json const zero3 = report_of(run_of("zero3") + budget);
  for (Json const& rank : zero3["memory"]) {
    EXPECT_LE(rank["all"]["peak"], 72 * kMiB);
    EXPECT_GT(rank["proportional_set_size"], 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LE(rank["proportional_set_size"], 72 * kMiB);
#endif
  }
}

TEST(TrainGptMemory, ABudgetIsASize) {
  for (char const* text : {"0", "-1", "much", "1X"}) {
    ProgramResult const result = run_train_gpt(run_of("ddp") + " --memory-budget " + text, 20);
    EXPECT_EQ(result.code, 2) << text;
    EXPECT_NE(result.error.find("--memory-budget"), std::string::npos) << result.error;
  }
}

}  // namespace
}  // namespace weft::test
