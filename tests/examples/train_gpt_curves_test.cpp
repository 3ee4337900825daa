#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "program.hpp"

// Whole loss curves of 200 steps of the same global batch, which 1, 2, 3 and 4 ranks can share.

namespace weft::test {
namespace {

using Curve = std::vector<double>;

/// Three ranks have no half.
std::string groups_of(int ranks, std::string const& arguments) {
  return ranks == 3 && arguments.find("hsdp") != std::string::npos ? " --shard-size 3" : "";
}

struct Trained {
  Curve losses{};
  int skipped = 0;  ///< steps
};

Trained train(std::string const& arguments) {
  TemporaryFolder const folder;
  ProgramResult const result = run_train_gpt(
      "--layers 2 --width 32 --heads 2 --seq 16 --batch 12 --lr 0.003 --steps 200 --sample 0 "
      "--report-json " +
      folder.file("report") + arguments);
  EXPECT_EQ(result.code, 0) << arguments << ": " << result.error;
  if (result.code != 0) return {};
  nlohmann::json const run = nlohmann::json::parse(read_file(folder.file("report")))["runs"][0];
  Trained trained{run["losses"], run["skipped_steps"]};
  EXPECT_EQ(trained.losses.size(), 200U);
  EXPECT_LT(trained.losses.back(), 0.85 * trained.losses.front()) << arguments << " does not learn";
  return trained;
}

/// Every strategy is set beside the same runs of ddp and of one rank: these run once.
Curve curve(int ranks, std::string const& arguments, int* skipped = nullptr) {
  static std::map<std::string, Trained> known;
  std::string const all =
      " --ranks " + std::to_string(ranks) + " " + arguments + small_buckets(arguments) + groups_of(ranks, arguments);
  auto const [found, is_new] = known.try_emplace(all);
  if (is_new) found->second = train(all);
  if (skipped != nullptr) *skipped = found->second.skipped;
  return found->second.losses;
}

/// The largest relative difference of two steps.
double distance(Curve const& a, Curve const& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]) / a[i]);
  return most;
}

/// Means of 20 steps each.
Curve smooth(Curve const& losses) {
  Curve means;
  for (auto at = losses.begin(); losses.end() - at >= 20; at += 20) {
    means.push_back(std::accumulate(at, at + 20, 0.0) / 20);
  }
  return means;
}

class Sharded : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Curves, Sharded, testing::Values("zero1", "zero2", "zero3", "hsdp"),
                         [](auto const& p) { return p.param; });

TEST_P(Sharded, HaveTheBitsOfDdpWhereNoNormIsTaken) {
  struct Run {
    int ranks;
    std::string options;
  };
  for (auto const& [ranks, options] :
       {Run{2, ""}, Run{3, "--optimizer adam"}, Run{4, "--accumulate 3 --recompute"},
        Run{2, "--optimizer lion --precision bf16"}, Run{4, "--optimizer sgd --warmup 0 --decay cosine"},
        Run{3, "--optimizer adagrad --accumulate 2 --precision bf16"}}) {
    Curve const expected = curve(ranks, options);
    EXPECT_EQ(curve(ranks, options + " --strategy " + GetParam()), expected) << ranks << " ranks, " << options;
  }
}

TEST_P(Sharded, AreWithin1e5OfDdpWhereANormIsTaken) {
  for (std::string const options : {"--clip 0.5", "--optimizer lamb --weight-decay 0.01"}) {
    for (int const ranks : {2, 3}) {
      EXPECT_LT(distance(curve(ranks, options + " --strategy " + GetParam()), curve(ranks, options)), 1e-5)
          << ranks << " ranks, " << options;
    }
  }
}

TEST_P(Sharded, AreWithin1e4OverRankCounts) {
  for (std::string const options : {"", "--clip 0.5"}) {
    Curve const one = curve(1, options + " --strategy " + GetParam());
    for (int const ranks : {2, 3, 4}) {
      EXPECT_LT(distance(curve(ranks, options + " --strategy " + GetParam()), one), 1e-4)
          << ranks << " ranks, " << options;
    }
  }
}

// Sixteen bits round differently what is summed differently: the curves part slowly. fp16 keeps three bits more than
// bf16, and follows as long as no overflow comes a step earlier or later.
TEST_P(Sharded, FollowOneRankInSixteenBits) {
  std::string const strategy = " --strategy " + GetParam();
  Curve const fp16 = curve(1, "--precision fp16 --loss-scale 1024");
  Curve const bf16 = curve(1, "--precision bf16");
  Curve const fp32 = curve(1, "");
  EXPECT_LT(distance(smooth(fp16), smooth(fp32)), 5e-3);
  EXPECT_LT(distance(smooth(bf16), smooth(fp32)), 5e-2);
  for (int const ranks : {2, 4}) {
    EXPECT_LT(distance(curve(ranks, "--precision fp16 --loss-scale 1024" + strategy), fp16), 5e-3) << ranks;
    EXPECT_LT(distance(smooth(curve(ranks, "--precision bf16" + strategy)), smooth(bf16)), 5e-2) << ranks;
  }
}

// The scale starts far too high, and finds the limit again every 25 steps: skipped steps do not count.
TEST_P(Sharded, FollowOneRankThroughForcedOverflows) {
  std::string const options = "--precision fp16 --loss-scale 1e9 --growth-interval 25 --clip 1";
  int skipped = 0;
  Curve const one = curve(1, options, &skipped);
  EXPECT_GE(skipped, 12);  // from 1e9 to what fits, and again every 26 steps
  for (int const ranks : {2, 3}) {
    int also_skipped = 0;
    Curve const many = curve(ranks, options + " --strategy " + GetParam(), &also_skipped);
    EXPECT_LT(distance(smooth(many), smooth(one)), 5e-2) << ranks << " ranks";
    EXPECT_NEAR(also_skipped, skipped, 3) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace weft::test
