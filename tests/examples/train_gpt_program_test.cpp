#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "harness/sanitizers.hpp"
#include "program.hpp"

namespace weft::test {
namespace {

using Json = nlohmann::json;

std::string const kSmall = "--layers 2 --width 32 --heads 2 --seq 16 --batch 8 --lr 0.003 --sample 0 ";

Json report_of(TemporaryFolder const& folder, std::string const& arguments) {
  std::string const path = folder.file("report.json");
  ProgramResult const result = run_train_gpt(kSmall + arguments + " --report-json " + path);
  EXPECT_EQ(result.code, 0) << result.error << result.out;
  return Json::parse(read_file(path));
}

std::vector<double> losses_of(TemporaryFolder const& folder, std::string const& arguments) {
  return report_of(folder, arguments)["runs"][0]["losses"];
}

/// The bytes of a checkpoint after a run: weights, moments and all.
std::string weights_of(TemporaryFolder const& folder, std::string const& arguments) {
  std::string const path = folder.file("weights");
  ProgramResult const result = run_train_gpt(kSmall + arguments + " --save " + path);
  EXPECT_EQ(result.code, 0) << result.error << result.out;
  std::string const bytes = read_file(path);
  EXPECT_GT(bytes.size(), 100'000U);
  std::filesystem::remove(path);
  return bytes;
}

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
      {"--device cuda --strategy zero1 --optimizer lamb", 2, "lamb under zero1"},
#else
      {"--device cuda", 2, "built without CUDA"},
#endif
      {"--loss-scale 1024", 2, "--loss-scale: is for --precision fp16"},
  };
  for (auto const& [arguments, code, expected] : wrong) {
    ProgramResult const result = run_train_gpt("--steps 2 --layers 1 --width 30 --heads 2 --sample 0 " + arguments, 20);
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
  ProgramResult const result = run_train_gpt(kSmall + "--steps 2 --ranks 4", 20);
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

struct Piece {
  double start;
  double end;
};

/// Milliseconds during which some piece of `a` (and, when given, some piece of `b`) is active; counts at every
/// boundary.
double active_ms(std::vector<Piece> const& a, std::vector<Piece> const* b) {
  std::vector<double> cuts;
  for (std::vector<Piece> const* pieces : {&a, b != nullptr ? b : &a}) {
    for (Piece const& piece : *pieces) cuts.insert(cuts.end(), {piece.start, piece.end});
  }
  std::ranges::sort(cuts);
  auto const covered = [](std::vector<Piece> const& pieces, double at) {
    return std::ranges::any_of(pieces, [at](Piece const& p) { return p.start <= at && at < p.end; });
  };
  double total = 0;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    double const middle = (cuts[i] + cuts[i + 1]) / 2;
    if (covered(a, middle) && (b == nullptr || covered(*b, middle))) total += cuts[i + 1] - cuts[i];
  }
  return total;
}

class Strategies : public testing::TestWithParam<char const*> {};

// Programs take long under ThreadSanitizer, and zero1's and hsdp's threads are those of zero2 and zero3.
std::vector<char const*> strategies() {
  if (kThreadSanitizer) return {"ddp", "zero2", "zero3"};
  return {"ddp", "zero1", "zero2", "zero3", "hsdp"};
}

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
  ProgramResult const result = run_train_gpt(kSmall + "--steps 2 --ranks 2 --strategy zero3 --gather-cap-mb 0.01", 20);
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.error.find("unit 'embedding' is"), std::string::npos) << result.error;
  ProgramResult const groups = run_train_gpt(kSmall + "--steps 2 --ranks 4 --strategy hsdp --shard-size 3", 20);
  EXPECT_EQ(groups.code, 2);
  EXPECT_NE(groups.error.find("--shard-size 3 does not divide 4 ranks; give --shard-size 1 or 2 or 4"),
            std::string::npos)
      << groups.error;
}

TEST(TrainGpt, HybridShardingSaysHowItSplits) {
  auto const run = [](std::string const& split) {
    return run_train_gpt(
        "--layers 1 --width 16 --heads 1 --seq 8 --sample 0 --batch 6 --steps 1 --strategy hsdp " + split, 20);
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

TEST_P(Strategies, HiddenPercentFollowsFromTheTrace) {
  TemporaryFolder const folder;
  Json const run = report_of(folder, "--steps 12 --ranks 2 --link 50us:100MB/s --strategy " + std::string(GetParam()) +
                                         small_buckets(GetParam()) + " --trace " + folder.file("trace"))["runs"][0];
  EXPECT_NE(run["link"].get<std::string>().find("emulated"), std::string::npos);
  std::map<int, std::map<std::string, std::vector<Piece>>> steps;  // step → lane → pieces of rank 0
  Json const trace = Json::parse(read_file(folder.file("trace")));
  for (Json const& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] == 0) {
      double const start = event["ts"].get<double>() / 1e3;
      int const step = std::stoi(event["name"].get<std::string>().substr(5));
      steps[step][event["cat"]].push_back({start, start + event["dur"].get<double>() / 1e3});
    }
  }
  ASSERT_EQ(steps.size(), 12U);
  ASSERT_EQ(run["steps"].size(), 12U);
  for (Json const& figures : run["steps"]) {
    auto& lanes = steps.at(figures["step"].get<int>() + 1);
    double const communication = active_ms(lanes["communication"], nullptr);
    double const hidden = active_ms(lanes["communication"], &lanes["compute"]);
    EXPECT_GT(communication, 0.5);
    EXPECT_NEAR(communication, figures["communication_ms"], 0.01);
    EXPECT_NEAR(hidden, figures["hidden_ms"], 0.01);
    EXPECT_NEAR(100 * hidden / communication, figures["hidden_percent"], 0.5);
  }
}

TEST(TrainGpt, CompareRunsEveryVariantFromTheSameStart) {
  TemporaryFolder const folder;
  Json const runs = report_of(folder, "--steps 6 --ranks 2 --compare --link auto --bucket-mb 0.03")["runs"];
  std::vector<std::string> names;
  for (Json const& run : runs) {
    names.push_back(run["name"]);
    EXPECT_GT(run["step_ms"].get<double>(), 0.0);
    EXPECT_GT(run["tokens_per_s"].get<double>(), 0.0);
    if (run["name"] != "compute only") {
      EXPECT_EQ(run["losses"], runs[0]["losses"]) << run["name"];
      EXPECT_NE(run["link"].get<std::string>().find("emulated"), std::string::npos);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"weft", "no overlap", "no bucketing", "compute only"}));
  EXPECT_EQ(runs[1]["hidden_ms"].get<double>(), 0.0);  // nothing overlaps where overlap is off
}

std::vector<std::string> words_of(std::string const& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string line_starting(std::string const& text, std::string const& start) {
  std::size_t const at = ("\n" + text).find("\n" + start);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST(TrainGpt, TheReportHasEveryPrintedFigureUnderItsName) {
  TemporaryFolder const folder;
  ProgramResult const result = run_train_gpt(
      kSmall + "--steps 6 --ranks 2 --compare --link 50us:100MB/s --report-json " + folder.file("report"));
  ASSERT_EQ(result.code, 0) << result.error;
  Json const runs = Json::parse(read_file(folder.file("report")))["runs"];
  struct Column {
    std::string name;
    std::string key;
    double precision;
  };
  std::vector<Column> const columns{{"step ms", "step_ms", 0.0051},
                                    {"compute ms", "compute_ms", 0.0051},
                                    {"communication ms", "communication_ms", 0.0051},
                                    {"hidden %", "hidden_percent", 0.051},
                                    {"exposed ms", "exposed_ms", 0.0051},
                                    {"tokens/s", "tokens_per_s", 0.51},
                                    {"vs weft", "vs_weft", 0.00051},
                                    {"bound ms", "bound_ms", 0.0051},
                                    {"step/bound", "step_over_bound", 0.00051}};
  std::string names;
  for (Column const& column : columns) names += column.name + " ";
  std::string printed;
  for (std::string const& word : words_of(line_starting(result.out, "run "))) printed += word + " ";
  EXPECT_EQ(printed, "run link " + names);

  for (Json const& run : runs) {
    std::vector<std::string> const words = words_of(line_starting(result.out, run["name"].get<std::string>() + " "));
    ASSERT_GT(words.size(), columns.size()) << result.out;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      EXPECT_NEAR(std::stod(words[words.size() - columns.size() + i]), run[columns[i].key].get<double>(),
                  columns[i].precision)
          << run["name"] << ' ' << columns[i].name;
    }
  }
}

TEST(TrainGpt, EveryKeyOfTheReportIsDocumented) {
  TemporaryFolder const folder;
  Json const report = report_of(folder, "--steps 6 --ranks 2 --compare --link auto");
  std::string const readme = read_file(TRAIN_GPT_README);
  ASSERT_GT(readme.size(), 1000U);
  Json const& run = report["runs"][0];
  for (Json const* object : {&run, &run["steps"][0], &run["last_step_buckets"][0]}) {
    for (auto const& [key, value] : object->items()) {
      bool const named =
          readme.find("`" + key + "`") != std::string::npos || readme.find("`" + key + "[]`") != std::string::npos;
      EXPECT_TRUE(named) << key << " is not explained in examples/train_gpt/README.md";
    }
  }
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
  ProgramResult const result = run_train_gpt(kSmall + run + "--schedule weft");
  EXPECT_NE(result.out.find("schedule weft: "), std::string::npos) << result.out;
  for (char const* bad :
       {"--schedule fastest", "--schedule buckets=0", "--schedule buckets=x", "--schedule weft --strategy zero2"}) {
    ProgramResult const refused = run_train_gpt(kSmall + run + bad, 20);
    EXPECT_EQ(refused.code, 2) << bad << refused.error;
    EXPECT_EQ(std::ranges::count(refused.error, '\n'), 1) << bad << ": " << refused.error;
  }
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
