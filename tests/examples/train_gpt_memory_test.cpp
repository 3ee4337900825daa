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

/// Bytes of a parameter.
struct Keeps {
  std::string strategy;
  double parameters;
  double gradients;
  double states;
  /// zero1 and zero2 take the values that each rank begins with, whole, into their own memory; ddp rounds f32 values.
  double parameters_peak;
  double gradients_peak;  ///< zero2 gives memory back once a bucket is reduced; here all are in one
};

/// Of a decoder with pre-norm blocks and an MLP four times as wide, f32, nothing computed again: per row and block the
/// residual stream twice, two norms with mean and deviation, queries, keys and values, attention's output and
/// probabilities, and the MLP before and after GELU; per row the stream at the end, its norm, the logits, and the
/// gradients that walk back.
double activation_bytes(double layers, double width, double heads, double seq, double rows) {
  double const block = 2 * width + 2 * (width + 2) + 3 * width + width + heads * seq + 2 * (4 * width);
  double const ends = 2 * width + 2 + 256;
  double const backwards = 2 * width + 4 * width;
  return 4 * (rows * (layers * block + ends + backwards) + seq * seq);
}

void expect_near(Json const& usage, char const* kind, double live, double peak) {
  EXPECT_NEAR(usage[kind]["live"], live, 0.02 * live) << kind;
  EXPECT_NEAR(usage[kind]["peak"], peak, 0.02 * peak) << kind;
}

TEST(TrainGptMemory, IsWhatTheoryGivesEachStrategyWithinTwoPercent) {
  constexpr double kOwn = 1.0 / kRanks;
  constexpr double kBlock = 12 * 128 * 128 + 13 * 128;  // elements of the largest unit
  constexpr double kFirstTensor = 256 * 128;
  constexpr double kCount = 2 * kBlock + 2 * kFirstTensor + 16 * 128 + 2 * 128;
  for (Keeps const& keeps :
       {Keeps{"ddp", 4, 4, 8, 4, 4}, Keeps{"zero1", 4, 4, 8 * kOwn, 8, 4}, Keeps{"zero2", 4, 4 * kOwn, 8 * kOwn, 8, 4},
        Keeps{"zero3", 4 * kOwn, 4 * kOwn, 8 * kOwn, 4 * kOwn, 4 * kOwn}, Keeps{"hsdp", 2, 2, 4, 2, 2},
        Keeps{"zero3 --precision bf16", 2 * kOwn, 2 * kOwn, 12 * kOwn, 2 * kOwn, 2 * kOwn},
        Keeps{"ddp --precision bf16 --optimizer lion", 2, 2, 8, 4 + 2 * kFirstTensor / kCount, 2}}) {
    SCOPED_TRACE(keeps.strategy);
    Json const report = report_of(run_of(keeps.strategy, "--layers 2 --width 128 --heads 4"));
    double const count = report["model"]["parameters"];
    ASSERT_EQ(count, kCount);
    ASSERT_EQ(report["memory"].size(), static_cast<std::size_t>(kRanks));
    for (Json const& rank : report["memory"]) {
      expect_near(rank, "parameters", count * keeps.parameters, count * keeps.parameters_peak);
      expect_near(rank, "gradients", count * keeps.gradients, count * keeps.gradients_peak);
      expect_near(rank, "optimizer states", count * keeps.states, count * keeps.states);
      bool const casts = keeps.strategy.find("bf16") != std::string::npos;  // f32 copies of a unit and its gradients
      double const activations = activation_bytes(2, 128, 4, 16, 16) + (casts ? 2 * 4 * kBlock : 0);
      expect_near(rank, "activations", activations, activations);
      EXPECT_GE(rank["all"]["peak"], rank["all"]["live"]);
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
