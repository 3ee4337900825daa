// --strategy: they all train alike, and go on from one another.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "small_runs.hpp"

namespace weft::test {
namespace {

class Strategies : public testing::TestWithParam<char const*> {};

INSTANTIATE_TEST_SUITE_P(TrainGpt, Strategies, testing::ValuesIn(strategies()),
                         [](auto const& strategy) { return std::string(strategy.param); });

TEST_P(Strategies, HaveTheLossesAndTheStateOfDdp) {
  TemporaryFolder const folder;
  std::string const strategy = std::string(" --strategy ") + GetParam();
  std::string const caps = small_buckets(strategy) + " --save ";
  for (char const* ranks : {"1", "2", "4"}) {
    std::string const run = std::string("--steps 50 --ranks ") + ranks;
    std::vector<double> const expected = losses_of(folder, run + " --save " + folder.file("ddp"));
    EXPECT_EQ(losses_of(folder, run + strategy + caps + folder.file("sharded")), expected) << ranks << " ranks";
    EXPECT_TRUE(read_file(folder.file("sharded")) == read_file(folder.file("ddp"))) << ranks << " ranks";
  }
}

TEST(TrainGpt, UnitsMayBeGatheredInAnyWay) {
  TemporaryFolder const folder;
  std::string const run = "--steps 12 --ranks 4 --accumulate 2 ";
  std::vector<double> const expected = losses_of(folder, run);
  for (char const* options : {"zero3 --prefetch 0", "zero3 --prefetch 3 --keep-gathered",
                              "zero3 --gather-cap-mb 0.1 --prefetch 2 --recompute", "hsdp --shard-size 4",
                              "hsdp --shard-size 1 --keep-gathered --gather-cap-mb 0.06"}) {
    EXPECT_EQ(losses_of(folder, run + "--strategy " + options), expected) << options;
  }
  std::vector<double> const by_group = losses_of(folder, run + "--strategy hsdp --sum-by-group");
  for (std::size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(by_group[step], expected[step], 1e-5 * expected[step]) << "step " << step;
  }
}

TEST(TrainGpt, AUnitThatTheCapCannotHoldIsNamed) {
  ProgramResult const result = run_train_gpt(kSmall + "--steps 2 --ranks 2 --strategy zero3 --gather-cap-mb 0.01");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.error.find("unit 'embedding' is"), std::string::npos) << result.error;
  ProgramResult const groups = run_train_gpt(kSmall + "--steps 2 --ranks 4 --strategy hsdp --shard-size 3");
  EXPECT_EQ(groups.code, 2);
  EXPECT_NE(groups.error.find("--shard-size 3 does not divide 4 ranks; give --shard-size 1 or 2 or 4"),
            std::string::npos)
      << groups.error;
}

TEST(TrainGpt, HybridShardingSaysHowItSplits) {
  auto const run = [](std::string const& split) {
    return run_train_gpt("--layers 1 --width 16 --heads 1 --seq 8 --sample 0 --batch 6 --steps 1 --strategy hsdp " +
                         split);
  };
  EXPECT_NE(run("--ranks 2").out.find("2 ranks, hsdp in 2 groups of 1,"), std::string::npos);
  EXPECT_NE(run("--ranks 3 --shard-size 3").out.find("3 ranks, hsdp in 1 group of 3,"), std::string::npos);
  ProgramResult const odd = run("--ranks 3");
  EXPECT_EQ(odd.code, 2);
  EXPECT_EQ(odd.out, "");
  EXPECT_EQ(std::ranges::count(odd.error, '\n'), 1) << odd.error;
  EXPECT_NE(odd.error.find("3 ranks have no half; give --shard-size 1 or 3"), std::string::npos) << odd.error;
}

TEST_P(Strategies, AgreeHoweverAStepIsMade) {
  TemporaryFolder const folder;
  std::string const strategy = std::string(" --strategy ") + GetParam();
  for (std::string const options : {"--accumulate 2 --recompute --optimizer lion --state 8bit",
                                    "--precision bf16 --optimizer sgd --decay linear"}) {
    std::string const run = "--steps 12 --ranks 2 " + options;
    if (options.find("8bit") == std::string::npos ||
        GetParam() == std::string("ddp")) {  // rounded by where pieces begin
      EXPECT_EQ(losses_of(folder, run + strategy), losses_of(folder, run)) << options;
    } else {
      EXPECT_NEAR(losses_of(folder, run + strategy).back(), losses_of(folder, run).back(), 0.05) << options;
    }
  }
}

TEST_P(Strategies, ResumeWhatOverflowedInAnotherStrategy) {
  TemporaryFolder const folder;
  std::string const run =
      "--ranks 2 --precision fp16 --loss-scale 1e9 --growth-interval 4 --optimizer adagrad --clip 1 ";
  std::vector<double> const straight = losses_of(folder, run + "--steps 30");
  std::string const strategy = std::string(" --strategy ") + GetParam();
  ASSERT_EQ(run_train_gpt(kSmall + run + "--steps 19 --save " + folder.file("part") + strategy).code, 0);
  for (char const* rest : {"ddp", "zero2"}) {
    std::vector<double> const resumed =
        losses_of(folder, run + "--steps 30 --resume " + folder.file("part") + " --strategy " + rest);
    ASSERT_EQ(resumed.size(), 11U);
    for (std::size_t i = 0; i < resumed.size(); ++i) {
      EXPECT_NEAR(resumed[i], straight[19 + i], 1e-5 * straight[19 + i]) << rest << ", step " << 19 + i;
    }
  }
}

TEST_P(Strategies, ContinueOneAnother) {
  TemporaryFolder const folder;
  std::string const straight = weights_of(folder, "--steps 16 --ranks 2");
  for (char const* first : {"ddp", "zero2"}) {
    std::string const start = std::string("--steps 7 --ranks 2 --strategy ") + first;
    ASSERT_EQ(run_train_gpt(kSmall + start + " --save " + folder.file("part")).code, 0);
    std::string const rest = std::string("--steps 16 --ranks 2 --strategy ") + GetParam();
    EXPECT_TRUE(straight == weights_of(folder, rest + " --resume " + folder.file("part"))) << first;
  }
}

}  // namespace
}  // namespace weft::test
