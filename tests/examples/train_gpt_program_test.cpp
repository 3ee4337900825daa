#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "small_runs.hpp"

namespace weft::test {
namespace {

TEST(TrainGpt, LossesAgreeOverRankCounts) {
  TemporaryFolder const folder;
  std::vector<double> const one = losses_of(folder, "--steps 50 --ranks 1");
  ASSERT_EQ(one.size(), 50U);
  EXPECT_LT(one.back(), 0.8 * one.front());  // it learns
  for (char const* ranks : {"2", "4"}) {
    std::vector<double> const many = losses_of(folder, std::string("--steps 50 --ranks ") + ranks);
    ASSERT_EQ(many.size(), one.size());
    for (std::size_t step = 0; step < one.size(); ++step) {
      EXPECT_NEAR(many[step], one[step], 1e-4 * one[step]) << ranks << " ranks, step " << step;
    }
  }
}

TEST(TrainGpt, RepeatedRunsAreBitIdentical) {
  TemporaryFolder const folder;
  std::string const first = weights_of(folder, "--steps 12 --ranks 2");
  EXPECT_TRUE(first == weights_of(folder, "--steps 12 --ranks 2"));
  EXPECT_FALSE(first == weights_of(folder, "--steps 12 --ranks 2 --seed 2"));
}

TEST(TrainGpt, BucketCapsDoNotChangeTheWeights) {
  TemporaryFolder const folder;
  std::string const whole = weights_of(folder, "--steps 12 --ranks 2 --bucket-mb 64 --first-bucket-mb 64");
  for (char const* megabytes : {"0.001", "0.0093", "0.031", "0.1"}) {
    std::string const caps = std::string(" --bucket-mb ") + megabytes + " --first-bucket-mb " + megabytes;
    EXPECT_TRUE(whole == weights_of(folder, "--steps 12 --ranks 2" + caps)) << caps;
  }
}

TEST(TrainGpt, ResumedRunContinuesBitIdentically) {
  TemporaryFolder const folder;
  std::string const straight = weights_of(folder, "--steps 16 --ranks 2");
  ASSERT_EQ(run_train_gpt(kSmall + "--steps 7 --ranks 2 --save " + folder.file("part")).code, 0);
  EXPECT_TRUE(straight == weights_of(folder, "--steps 16 --ranks 2 --resume " + folder.file("part")));
}

TEST(TrainGpt, BadInputIsOneLineAndAFailure) {
  TemporaryFolder const folder;
  std::ofstream(folder.file("empty")).flush();
  std::ofstream(folder.file("short")) << "too short";
  struct Bad {
    std::string arguments;
    int code;  ///< 2: the command line is wrong, 1: what it names
    std::string expected;
  };
  std::vector<Bad> const wrong{
      {"--ranks 0", 2, "--ranks"},
      {"--ranks -3", 2, "--ranks"},
      {"--ranks 3", 2, "multiple of 3"},
      {"--heads 4", 2, "4 heads do not divide --width 30"},
      {"--steps 0", 2, "--steps"},
      {"--no-such-option", 2, "no-such-option"},
      {"--step 3 words", 2, "--step 3 words: not understood"},
      {"--ranks 2 --ranks 3", 2, "multiple of 3"},  // the last one counts
      {"--link fast", 2, "fast"},
      {"--ranks 2 --data " + folder.file("none"), 1, "no such file"},
      {"--ranks 2 --data " + folder.file("empty"), 1, "is empty"},
      {"--ranks 2 --data " + folder.file("short"), 1, "too short"},
      {"--ranks 2 --resume " + folder.file("short"), 1, "not a checkpoint"},
      {"--ranks 2 --save " + folder.file("no/folder"), 1, "cannot write"},
      {"--ranks 2 --save /dev/null", 1, "no regular file"},
      {"--ranks 2 --trace " + folder.file(""), 1, "cannot write"},
      {"--trace " + folder.file("same") + " --report-json " + folder.file("same"), 2, "two outputs"},
      {"--lr nan", 2, "--lr"},
      {"--lr inf", 2, "--lr"},
      {"--seed -1", 2, "--seed"},
      {"--seed 99999999999999999999", 2, "--seed"},
      {"--bucket-mb nan", 2, "--bucket-mb"},
      {"--last-bucket-mb 0", 2, "--last-bucket-mb"},
      {"--bucket-policy best", 2, "--bucket-policy"},
      {"--compare-caps 1", 2, "--compare"},
      {"--error-feedback", 2, "--error-feedback"},
      {"--compress bf16 --precision bf16", 2, "--compress"},
      {"--compress bf16 --strategy zero3", 2, "--compress"},
      {"--ranks 1 --link auto", 2, "--link auto"},
      {"--ranks 2 --layers 16384 --width 1048576", 1, "under ddp, of parameters, gradients and optimizer states alone"},
      {"--ranks 2 --layers 16384 --width 65536 --strategy zero3 --recompute", 1, "GiB for its 2 ranks"},
      {"--strategy zero9", 2, "zero9"},
      {"--strategy zero3 --prefetch -1", 2, "--prefetch"},
      {"--strategy zero3 --gather-cap-mb nan", 2, "--gather-cap-mb"},
      {"--ranks 2 --strategy zero1 --compare", 2, "--strategy"},
      {"--ranks 2 --compare --clip 1", 2, "--compare"},
      {"--ranks 2 --accumulate 3", 2, "2 ranks in 3 passes each; take a multiple of 6"},
      {"--accumulate 0", 2, "--accumulate"},
      {"--precision fp8", 2, "--precision"},
      {"--optimizer adamax", 2, "--optimizer"},
      {"--clip nan", 2, "--clip"},
      {"--loss-scale 0", 2, "--loss-scale"},
      {"--decay cosine --warmup 2", 2, "--warmup"},
      {"--decay sometimes", 2, "--decay"},
      {"--prefetch 2", 2, "--prefetch: is for --strategy zero3 and hsdp"},
      {"--strategy zero3 --bucket-mb 1", 2, "--bucket-mb: is for --strategy ddp, zero1 and zero2"},
      {"--strategy zero3 --shard-size 1", 2, "--shard-size: is for --strategy hsdp"},
      {"--device tpu", 2, "--device"},
      {"--cuda-graph", 2, "--cuda-graph: is for --device cuda"},
      {"--device cuda --link 10us:1GB/s", 2, "--link: is for --device cpu"},
      {"--device cuda --compare", 2, "--compare: is for --device cpu"},
#ifdef WEFT_WITH_CUDA
      {"--device cuda --autotune", 2, "--autotune: is for --device cpu"},
#else
      {"--device cuda", 2, "built without CUDA"},
#endif
      {"--loss-scale 1024", 2, "--loss-scale: is for --precision fp16"},
  };
  for (auto const& [arguments, code, expected] : wrong) {
    ProgramResult const result = run_train_gpt("--steps 2 --layers 1 --width 30 --heads 2 --sample 0 " + arguments);
    EXPECT_EQ(result.code, code) << arguments;
    EXPECT_EQ(std::ranges::count(result.error, '\n'), 1) << arguments << ": " << result.error;
    EXPECT_NE(result.error.find(expected), std::string::npos) << arguments << ": " << result.error;
    EXPECT_EQ(result.out, "") << arguments;
  }
}

#ifdef WEFT_WITH_CUDA
TEST(TrainGpt, AMissingGpuIsOneLineAndAFailure) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  for (char const* ranks : {"1", "2"}) {
    ProgramResult const result = run_train_gpt(kSmall + "--steps 2 --device cuda --ranks " + ranks);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(std::ranges::count(result.error, '\n'), 1) << result.error;
    EXPECT_NE(result.error.find("no GPU that CUDA can use"), std::string::npos) << result.error;
    EXPECT_EQ(result.out, "");
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}
#endif

TEST(TrainGpt, ABadVariableIsOneLineAndAUsageError) {
  setenv("WEFT_TIMEOUT", "soon", 1);
  ProgramResult const result = run_train_gpt(kSmall + "--steps 2 --ranks 4");
  unsetenv("WEFT_TIMEOUT");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(std::ranges::count(result.error, '\n'), 1) << result.error;
  EXPECT_NE(result.error.find("WEFT_TIMEOUT=soon"), std::string::npos) << result.error;
}

TEST(TrainGpt, ADivergedRunKeepsItsLastGoodCheckpoint) {
  TemporaryFolder const folder;
  std::string const path = folder.file("run");
  std::string const diverging =
      "--layers 2 --width 64 --heads 4 --seq 32 --batch 12 --sample 0 --optimizer sgd --lr 900 --ranks 2 --steps 20 ";
  ProgramResult const result = run_train_gpt(diverging + "--checkpoint-every 1 --checkpoint " + path);
  EXPECT_EQ(result.code, 1) << result.error << result.out;
  EXPECT_NE(result.error.find("the training has diverged"), std::string::npos) << result.error;
  std::size_t values = 0;
  for (auto const& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::string const bytes = read_file(entry.path().string());
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    for (std::size_t at = sizeof header + header; at < bytes.size(); at += sizeof(float), ++values) {
      float value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      ASSERT_TRUE(std::isfinite(value)) << entry.path() << ", byte " << at;
    }
  }
  EXPECT_GT(values, 100'000U);
  ProgramResult const whole = run_train_gpt(diverging + "--steps 6 --save " + folder.file("whole"));
  EXPECT_EQ(whole.code, 1) << whole.error << whole.out;
  EXPECT_FALSE(std::filesystem::exists(folder.file("whole")));
}

TEST(TrainGpt, ALinkToACheckpointKeepsPointingAtIt) {
  TemporaryFolder const folder;
  std::ofstream(folder.file("target")) << "old";
  std::ofstream(folder.file("link.tmp")) << "precious";
  std::filesystem::create_symlink(folder.file("target"), folder.file("link"));
  ASSERT_EQ(run_train_gpt(kSmall + "--steps 1 --save " + folder.file("link")).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_GT(read_file(folder.file("target")).size(), 100'000U);
  EXPECT_EQ(read_file(folder.file("link.tmp")), "precious");
}

TEST(TrainGpt, TheLastBucketsSizeIsAnOption) {
  TemporaryFolder const folder;
  auto const buckets_of = [&](std::string const& last) {
    Json const run = report_of(
        folder, "--steps 4 --ranks 2 --bucket-mb 0.05 --first-bucket-mb 0.05 --last-bucket-mb " + last)["runs"][0];
    return run["last_step_buckets"];
  };
  EXPECT_GT(buckets_of("0.001").size(), buckets_of("0.05").size());  // halves towards the end, against equal ones
}

TEST(TrainGpt, BucketPoliciesAndCapsLoseAlike) {
  TemporaryFolder const folder;
  Json const runs = report_of(folder,
                              "--steps 5 --ranks 2 --link 50us:100MB/s --bucket-policy optimal --compare "
                              "--compare-caps 0.001 0.05")["runs"];
  ASSERT_EQ(runs.size(), 4U);
  std::vector<std::string> const names{"weft", "cap 0.001 MiB", "cap 0.05 MiB", "compute only"};
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(runs[i]["name"], names[i]);
  EXPECT_EQ(runs[1]["losses"], runs[0]["losses"]);
  EXPECT_EQ(runs[2]["losses"], runs[0]["losses"]);
  EXPECT_NE(runs[3]["losses"], runs[0]["losses"]) << "gradients that stay local";
  EXPECT_GT(runs[1]["last_step_buckets"].size(), runs[2]["last_step_buckets"].size());
}

TEST(TrainGpt, SchedulesDoNotChangeTheWeights) {
  TemporaryFolder const folder;
  std::string const run = "--steps 12 --ranks 2 ";
  std::string const plain = weights_of(folder, run);
  for (char const* schedule : {"program", "buckets=0.05", "weft"}) {
    EXPECT_TRUE(plain == weights_of(folder, run + "--schedule " + schedule)) << schedule;
  }
  // Several passes, a norm over all gradients, and a loss scale besides.
  for (char const* more : {"--accumulate 2 ", "--clip 0.5 ", "--accumulate 2 --clip 0.5 --precision fp16 "}) {
    EXPECT_TRUE(weights_of(folder, run + more) == weights_of(folder, run + more + "--schedule weft")) << more;
  }
  ProgramResult const result = run_train_gpt(kSmall + run + "--schedule weft");
  EXPECT_NE(result.out.find("schedule weft: "), std::string::npos) << result.out;
  for (char const* bad : {"--schedule fastest", "--schedule buckets=0", "--schedule buckets=x",
                          "--schedule weft --strategy zero2", "--schedule weft --compress bf16"}) {
    ProgramResult const refused = run_train_gpt(kSmall + run + bad);
    EXPECT_EQ(refused.code, 2) << bad << refused.error;
    EXPECT_EQ(std::ranges::count(refused.error, '\n'), 1) << bad << ": " << refused.error;
  }
}

TEST(TrainGpt, ReportSaysWhatWasTuned) {
  TemporaryFolder const folder;
  setenv("WEFT_AUTOTUNE_CACHE", folder.file("tuned.json").c_str(), 1);
  std::string const run = "--steps 60 --ranks 2 --strategy zero3 --autotune --autotune-share 0.9";
  Json const tuned = report_of(folder, run)["autotune"];
  EXPECT_FALSE(tuned["from_cache"]);
  EXPECT_GT(tuned["candidates"], 1);
  EXPECT_GT(tuned["steps"], 2);
  EXPECT_LE(tuned["steps"], 54);
  EXPECT_GT(tuned["step_ms"], 0);
  EXPECT_GT(tuned["default_step_ms"], 0);
  EXPECT_EQ(tuned["default"], "prefetch 1");
  Json const again = report_of(folder, run)["autotune"];
  EXPECT_TRUE(again["from_cache"]);
  EXPECT_EQ(again["setting"], tuned["setting"]);
  EXPECT_EQ(again["step_ms"], tuned["step_ms"]);
  EXPECT_TRUE(report_of(folder, "--steps 3 --ranks 2")["autotune"].is_null());
  unsetenv("WEFT_AUTOTUNE_CACHE");
}

TEST(TrainGpt, CompressedGradientsTrainAlike) {
  TemporaryFolder const folder;
  std::string const run = "--steps 40 --ranks 2 --bucket-mb 0.03 ";
  std::vector<double> const exact = losses_of(folder, run);
  for (std::string const compress : {"--compress bf16", "--compress bf16 --error-feedback", "--compress fp16"}) {
    std::vector<double> const losses = losses_of(folder, run + compress);
    EXPECT_NE(losses, exact) << compress;
    EXPECT_EQ(losses_of(folder, run + compress + " --strategy zero2"), losses) << compress;
    for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(losses[i], exact[i], 0.01 * exact[i]) << compress;
  }
}

TEST(TrainGpt, SampleIsSeeded) {
  std::string const arguments = "--layers 1 --width 16 --heads 1 --seq 8 --batch 2 --steps 2 --prompt abc --sample 20";
  auto const sample_of = [](ProgramResult const& result) { return result.out.substr(result.out.find("Sample:")); };
  std::string const sample = sample_of(run_train_gpt(arguments));
  EXPECT_EQ(sample.substr(0, 11), "Sample:\nabc");
  EXPECT_EQ(sample, sample_of(run_train_gpt(arguments)));
  EXPECT_NE(sample, sample_of(run_train_gpt(arguments + " --seed 9")));
}

}  // namespace
}  // namespace weft::test
