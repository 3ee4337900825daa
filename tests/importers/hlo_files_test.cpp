// Real training steps (hlo/ of the test data) against what is known of the models: Llama 3 with its published sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <ostream>
#include <string>

#include "importers/hlo_text.hpp"

namespace weft::test {
namespace {

struct Model {
  std::string file{};
  int ranks = 0;
  int shards = 0;  ///< ranks that share one copy of the parameters
  double layers = 0;
  double width = 0;
  double hidden = 0;
  double heads = 0;
  double kv_heads = 0;
  double tokens = 0;     ///< of one rank
  double sequence = 0;   ///< that a token may look at
  bool repeats = false;  ///< the backward pass begins by repeating the forward one, but for its last product

  static constexpr double kHead = 128;
  static constexpr double kVocabulary = 128256;
  [[nodiscard]] double down() const { return width * hidden; }
  [[nodiscard]] double layer() const { return 2 * width * kHead * (heads + kv_heads) + 3 * down(); }
  [[nodiscard]] double ends() const { return 2 * width * kVocabulary; }
  [[nodiscard]] double matrices() const { return layers * layer() + ends(); }
};

void PrintTo(Model const& model, std::ostream* stream) {
  *stream << model.file;
}

class HloFiles : public testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    auto const path = hlo_folder() / GetParam().file;
    if (!std::ifstream(path)) GTEST_SKIP() << path << " is absent; WEFT_TEST_DATA says where test data is";
    imported_ = import_file();
  }

  static ImportedHlo import_file(ImportHloOptions const& options = {}) {
    auto const path = hlo_folder() / GetParam().file;
    std::ifstream file(path);
    return import_hlo(file, path.filename(), options);
  }

  [[nodiscard]] double bytes_of(CollectiveKind kind, int ranks) const {
    double bytes = 0;
    for (auto const& collective : imported_.report.collectives) {
      if (collective.kind == to_string(kind) && collective.ranks == ranks) bytes += collective.bytes;
    }
    return bytes;
  }

  ImportedHlo imported_;
};

TEST_P(HloFiles, EverythingIsUnderstood) {
  check_graph(imported_.graph);
  EXPECT_TRUE(imported_.report.warnings.empty()) << to_string(imported_.report);
  EXPECT_EQ(imported_.report.ranks, GetParam().ranks);
  for (auto const& loop : imported_.report.loops) {
    EXPECT_TRUE(loop.known);
    EXPECT_EQ(loop.trips, GetParam().layers);
  }
}

/// Two per parameter and token forward, four backward, two more where the forward pass is repeated; the embedding has
/// no inputs to derive by. Attention does two products forward and five backward, half of them masked.
TEST_P(HloFiles, FlopsAreTheModels) {
  auto const& model = GetParam();
  double const again = model.repeats ? 2 * (model.layer() - model.down()) : 0;
  double const products = model.layers * (6 * model.layer() + again) + 5 * model.ends();
  double const pairs = model.tokens * model.sequence / 2;
  double const attention = model.layers * (model.repeats ? 4.5 : 3.5) * 4 * model.heads * Model::kHead * pairs;
  EXPECT_NEAR(imported_.report.flops / (products * model.tokens + attention), 1, 1e-3);
}

/// Each matrix is gathered forward and backward (embedding and head once), and its gradient scattered, in 16 bits.
TEST_P(HloFiles, GathersAndGradientsAreTheParameters) {
  auto const& model = GetParam();
  EXPECT_EQ(bytes_of(CollectiveKind::all_gather, model.shards), 2 * (2 * model.matrices() - model.ends()));
  EXPECT_EQ(bytes_of(CollectiveKind::reduce_scatter, model.shards), 2 * model.matrices());
  EXPECT_EQ(imported_.report.reduce_scatter_bytes, 2 * model.matrices());
  EXPECT_EQ(std::count_if(imported_.graph.ops.begin(), imported_.graph.ops.end(),
                          [](auto const& op) { return op.collective.kind == CollectiveKind::reduce_scatter; }),
            7 * static_cast<int>(model.layers) + 2);
}

double seconds_of(OpGraph const& graph, double flops, double bytes) {
  return std::accumulate(graph.ops.begin(), graph.ops.end(), 0.0, [&](double sum, OpNode const& op) {
    return op.kind == OpKind::collective ? sum : sum + std::max(op.flops / flops, op.memory_bytes / bytes);
  });
}

TEST_P(HloFiles, WithoutFusionComputationWouldLookLonger) {
  auto const alone = import_file({.fuse = false});
  EXPECT_NEAR(alone.report.memory_bytes, imported_.report.unfused_memory_bytes, 0.03 * alone.report.memory_bytes);
  EXPECT_EQ(alone.report.flops, imported_.report.flops);
  for (auto const& [flops, bytes] : {std::pair{187e12, 1.6e12}, std::pair{593e12, 3.35e12}}) {
    double const ratio = seconds_of(alone.graph, flops, bytes) / seconds_of(imported_.graph, flops, bytes);
    EXPECT_GE(ratio, 1.07);
    EXPECT_LE(ratio, 1.60);
  }
}

/// Parameters and both states of Adam are donated, and nothing that is updated needs memory of its own.
TEST_P(HloFiles, UpdatesAreInPlace) {
  auto const& graph = imported_.graph;
  auto const memory = memory_of(graph);
  double updated = 0;
  for (auto const& op : graph.ops) {
    if (op.kind != OpKind::update) continue;
    for (auto const tensor : op.writes) {
      auto const& written = graph.tensors[static_cast<std::size_t>(tensor)];
      if (!written.kept) continue;
      EXPECT_NE(memory[static_cast<std::size_t>(tensor)], tensor) << written.name;
      updated += static_cast<double>(written.bytes);
    }
  }
  EXPECT_NEAR(updated, 3 * 4 * GetParam().matrices() / GetParam().shards, 0.02 * updated);
}

INSTANTIATE_TEST_SUITE_P(
    Llama, HloFiles,
    testing::Values(Model{"hlo_llama31_8b_bf16_2x8.hlo", 16, 16, 32, 4096, 14336, 32, 8, 2 * 8192, 8192, false},
                    Model{"hlo_llama31_70b_bf16_16x8.hlo", 128, 64, 80, 8192, 28672, 64, 8, 2 * 8192, 8192, true},
                    Model{"hlo_llama31_405b_bf16_64x8.hlo", 512, 512, 126, 16384, 53248, 128, 8, 8192, 8192, true}),
    [](auto const& model) { return "On" + std::to_string(model.param.ranks); });

/// Context parallelism: keys and values travel round four ranks, in a loop over layers, with conditionals.
TEST(HloContextParallel, RingsArePermutes) {
  auto const path = hlo_folder() / "hlo_llama3_8b_cp_bf16_1x4.hlo";
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << path << " is absent; WEFT_TEST_DATA says where test data is";
  auto const imported = import_hlo(file, path.filename());
  EXPECT_TRUE(imported.report.warnings.empty()) << to_string(imported.report);
  EXPECT_EQ(imported.report.conditionals, 9);
  EXPECT_EQ(imported.report.reduce_scatters, 9);
  auto const& collectives = imported.report.collectives;
  auto const permutes = std::find_if(collectives.begin(), collectives.end(),
                                     [](auto const& collective) { return collective.kind == "permute"; });
  ASSERT_NE(permutes, collectives.end());
  EXPECT_EQ(permutes->calls, 32 * (3 + 3 + 5));
  EXPECT_EQ(permutes->ranks, 4);
}

}  // namespace
}  // namespace weft::test
