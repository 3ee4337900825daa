#include "weft/transformer_graph.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "scheduler/graph_facts.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using test::contains;

constexpr std::int64_t kLayers = 3;
constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kFfn = 160;
constexpr std::int64_t kVocabulary = 256;
constexpr std::int64_t kTokens = 2 * 32;
constexpr std::int64_t kSequence = 32;

TransformerShape small() {
  return {.name = "small",
          .layers = kLayers,
          .width = kWidth,
          .heads = 8,
          .kv_heads = 4,
          .ffn_width = kFfn,
          .vocabulary = kVocabulary,
          .sequence = kSequence,
          .micro_batch = 2};
}

// Of small(): queries and what is projected are square, keys and values half of that.
constexpr std::int64_t kMatricesOfLayer = 3 * kWidth * kWidth + 3 * kWidth * kFfn;
constexpr std::int64_t kLayer = kMatricesOfLayer + 2 * kWidth;
constexpr std::int64_t kTable = kVocabulary * kWidth;
constexpr std::int64_t kAll = kLayers * kLayer + 2 * kTable + kWidth;
// Scores and their product with values, half of them masked.
constexpr std::int64_t kAttention = kTokens * 2 * (2 * kSequence * kWidth) / 2;

double flops_of(OpGraph const& graph) {
  double flops = 0;
  for (auto const& op : graph.ops) flops += op.flops;
  return flops;
}

std::int64_t bytes_of(OpGraph const& graph, CollectiveKind kind, std::string const& group) {
  std::int64_t bytes = 0;
  for (auto const& op : graph.ops) {
    if (op.kind != OpKind::collective || op.collective.kind != kind) continue;
    if (graph.groups[static_cast<std::size_t>(op.collective.group)].name == group) bytes += op.collective.bytes;
  }
  return bytes;
}

std::size_t collectives_of(OpGraph const& graph, CollectiveKind kind) {
  std::size_t count = 0;
  for (auto const& op : graph.ops) count += op.kind == OpKind::collective && op.collective.kind == kind ? 1 : 0;
  return count;
}

OpId find(OpGraph const& graph, std::string const& name) {
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].name == name) return static_cast<OpId>(op);
  }
  ADD_FAILURE() << "there is no " << name;
  return 0;
}

TEST(TransformerPreset, HasAsManyParametersAsWasPublished) {
  std::vector<std::pair<char const*, std::int64_t>> const published = {
      {"llama2-7b", 6'738'415'616},     {"llama3-8b", 8'030'261'248}, {"llama3-70b", 70'553'706'496},
      {"llama3-405b", 405'853'388'800}, {"gpt2-small", 124'439'808},  {"gpt2-medium", 354'823'168},
      {"gpt2-large", 774'030'080},      {"gpt2-xl", 1'557'611'200}};
  for (auto const& [name, count] : published) EXPECT_EQ(parameter_count(transformer_preset(name)), count) << name;
  EXPECT_EQ(transformer_preset_names().size(), published.size());
}

TEST(TransformerGraph, FlopsAreSixForEachParameterAndToken) {
  // 2 in forward and 4 in backward, of matrices but not of the table that is only looked up.
  double const products = 6.0 * kTokens * (kLayers * kMatricesOfLayer + kTable);
  double const attention = 3.5 * kLayers * kAttention;
  EXPECT_DOUBLE_EQ(flops_of(transformer_graph(small())), products + attention);
  EXPECT_DOUBLE_EQ(flops_of(transformer_graph(small(), {.data_ranks = 4, .micro_batches = 3})),
                   3 * (products + attention));
  EXPECT_DOUBLE_EQ(flops_of(transformer_graph(small(), {.tensor_ranks = 4})), (products + attention) / 4);
  double of_stages = 0;
  for (int stage = 0; stage < 3; ++stage) {
    of_stages += flops_of(transformer_graph(small(), {.pipeline_stages = 3, .stage = stage}));
  }
  EXPECT_DOUBLE_EQ(of_stages, products + attention);
}

TEST(TransformerGraph, FlopsOfLargeModelsAreNearTheRule) {
  for (char const* const name : {"llama2-7b", "llama3-70b", "gpt2-xl"}) {
    auto const shape = transformer_preset(name);
    auto const graph = transformer_graph(shape);
    double const tokens = static_cast<double>(shape.sequence);
    double attention = 0;
    for (auto const& op : graph.ops) attention += contains(op.name, "attention") ? op.flops : 0;
    double const rule = 6 * static_cast<double>(parameter_count(shape)) * tokens;
    EXPECT_NEAR((flops_of(graph) - attention) / rule, 1, 0.03) << name;
    EXPECT_NEAR(attention / (3.5 * 2 * tokens * tokens * static_cast<double>(shape.width) * shape.layers), 1, 1e-9);
  }
}

TEST(TransformerGraph, RecomputingIsAnotherForward) {
  double const kept = flops_of(transformer_graph(small()));
  // Of the whole layer but the last product, whose result nothing in backward needs: nearly 8 rather than 6.
  double const forward = kLayers * (2.0 * kTokens * (kMatricesOfLayer - kWidth * kFfn) + kAttention);
  EXPECT_DOUBLE_EQ(flops_of(transformer_graph(small(), {.recompute = {"layer"}})), kept + forward);
  EXPECT_DOUBLE_EQ(flops_of(transformer_graph(small(), {.recompute = {"attention"}})), kept + kLayers * kAttention);
  EXPECT_DOUBLE_EQ(flops_of(transformer_graph(small(), {.recompute = {"attn_norm", "activation"}})), kept);
}

TEST(TransformerGraph, CollectivesMoveWhatTheStrategyShards) {
  for (bool const merged : {false, true}) {
    SCOPED_TRACE(merged);
    auto const graph = [&](TrainingStrategy strategy, TransformerPlan plan) {
      plan.strategy = strategy;
      plan.data_ranks = 8;
      plan.merged = merged;
      return transformer_graph(small(), plan);
    };
    using enum CollectiveKind;
    auto const ddp = graph(TrainingStrategy::ddp, {.micro_batches = 3});
    EXPECT_EQ(bytes_of(ddp, all_reduce, "replica"), 2 * kAll);
    EXPECT_EQ(collectives_of(ddp, all_reduce), merged ? kLayers + 2 : 9 * kLayers + 3);

    auto const zero1 = graph(TrainingStrategy::zero1, {.micro_batches = 3, .reduction_bytes = 4});
    EXPECT_EQ(bytes_of(zero1, reduce_scatter, "shard"), 4 * kAll);
    EXPECT_EQ(bytes_of(zero1, all_gather, "shard"), 2 * kAll);

    auto const zero2 = graph(TrainingStrategy::zero2, {.micro_batches = 3});
    EXPECT_EQ(bytes_of(zero2, reduce_scatter, "shard"), 3 * 2 * kAll);
    EXPECT_EQ(bytes_of(zero2, all_gather, "shard"), 2 * kAll);

    auto const zero3 = graph(TrainingStrategy::zero3, {.micro_batches = 3});
    EXPECT_EQ(bytes_of(zero3, reduce_scatter, "shard"), 3 * 2 * kAll);
    EXPECT_EQ(bytes_of(zero3, all_gather, "shard"), 3 * 2 * (kAll + kLayers * kLayer));  // layers once more in backward
    auto const once = graph(TrainingStrategy::zero3, {.layers_gathered_once = 2});
    EXPECT_EQ(bytes_of(once, all_gather, "shard"), 2 * (kAll + (kLayers - 2) * kLayer));

    auto const hsdp = graph(TrainingStrategy::hsdp, {.shard_ranks = 4, .micro_batches = 3, .reduction_bytes = 4});
    EXPECT_EQ(bytes_of(hsdp, reduce_scatter, "shard"), 3 * 4 * kAll);
    EXPECT_EQ(bytes_of(hsdp, all_reduce, "replica"), 4 * kAll / 4);  // of shards, after the last micro-batch
  }
}

TEST(TransformerGraph, TensorParallelLayersReduceFourTimes) {
  auto const graph = transformer_graph(small(), {.tensor_ranks = 2});
  std::int64_t const activation = kTokens * kWidth * 2;
  // Twice in forward and twice in backward of a layer, once each for embedding and head, and the loss's sums.
  EXPECT_EQ(bytes_of(graph, CollectiveKind::all_reduce, "tensor"), (4 * kLayers + 2) * activation + kTokens * 2 * 4);
}

TEST(TransformerGraph, GroupsCutTheMesh) {
  auto const graph = transformer_graph(small(), {.strategy = TrainingStrategy::hsdp,
                                                 .data_ranks = 4,
                                                 .shard_ranks = 2,
                                                 .tensor_ranks = 2,
                                                 .pipeline_stages = 2,
                                                 .clipping = true});
  std::map<std::string, std::vector<int>> first;
  std::map<std::string, std::size_t> sets;
  for (auto const& group : graph.groups) {
    first[group.name] = group.sets.front();
    sets[group.name] = group.sets.size();
  }
  EXPECT_EQ(first["tensor"], (std::vector<int>{0, 1}));
  EXPECT_EQ(first["shard"], (std::vector<int>{0, 2}));
  EXPECT_EQ(first["replica"], (std::vector<int>{0, 4}));
  EXPECT_EQ(first["stage"], (std::vector<int>{0, 8}));
  EXPECT_EQ(first["norm"], (std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(sets["shard"], 8u);
  EXPECT_EQ(sets["norm"], 2u);
}

/// Saved from forward to backward in one layer, when nothing is computed again: both norms' inputs and results,
/// queries, keys and values, what attention returns with its scales, the FFN's two wide ones.
constexpr std::int64_t kActivationBytes = 4;
constexpr std::int64_t kSavedOfLayer =
    kTokens * kActivationBytes * (4 * kWidth + 2 * kWidth + kWidth + 2 * kFfn + kFfn) + kTokens * 8 * 4;

TEST(TransformerGraph, APeakGrowsByWhatALayerSaves) {
  // With this vocabulary the peak is where the logits are there, and no gradient of a layer.
  auto const peak = [](int layers, TransformerPlan const& plan) {
    auto shape = small();
    shape.layers = layers;
    shape.vocabulary = 1 << 16;
    shape.activation_bytes = kActivationBytes;
    return test::peak_in_order_of_ids(transformer_graph(shape, plan));
  };
  auto const of_layer = [&](TransformerPlan const& plan) { return peak(6, plan) - peak(5, plan); };
  std::int64_t const input = kTokens * kWidth * kActivationBytes;
  EXPECT_EQ(of_layer({}), kLayer * (2 + 12) + kSavedOfLayer);
  EXPECT_EQ(of_layer({.recompute = {"layer"}}), kLayer * (2 + 12) + input);
  EXPECT_EQ(of_layer({.recompute = {"activation"}}),
            kLayer * (2 + 12) + kSavedOfLayer - kTokens * kFfn * kActivationBytes);
  EXPECT_EQ(of_layer({.strategy = TrainingStrategy::zero1, .data_ranks = 8}),
            kLayer * 2 + kLayer * 12 / 8 + kSavedOfLayer);
  EXPECT_EQ(of_layer({.strategy = TrainingStrategy::zero3, .data_ranks = 8}), kLayer * (2 + 12) / 8 + kSavedOfLayer);
}

TEST(TransformerGraph, ClippingMakesUpdatesWaitForAllGradients) {
  auto const graph = transformer_graph(small(), {.data_ranks = 2, .clipping = true});
  auto const free = transformer_graph(small(), {.data_ranks = 2});
  test::Reachability const reach(graph);
  test::Reachability const reach_free(free);
  OpId const last_gradient = find(graph, "embedding.table.dw");
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].kind != OpKind::update) continue;
    EXPECT_TRUE(reach.before(last_gradient, static_cast<OpId>(op))) << graph.ops[op].name;
    OpId const same = find(free, graph.ops[op].name);
    EXPECT_EQ(reach_free.before(find(free, "embedding.table.dw"), same), contains(graph.ops[op].name, "embedding"));
  }
}

TEST(TransformerGraph, GradientsOfWeightsHoldUpNoGradientOfActivations) {
  auto const graph = transformer_graph(small());
  test::Reachability const reach(graph);
  for (std::size_t weight = 0; weight < graph.ops.size(); ++weight) {
    if (!contains(graph.ops[weight].name, ".dw")) continue;
    for (std::size_t op = 0; op < graph.ops.size(); ++op) {
      if (!contains(graph.ops[op].name, ".dx")) continue;
      EXPECT_FALSE(reach.before(static_cast<OpId>(weight), static_cast<OpId>(op)))
          << graph.ops[weight].name << " before " << graph.ops[op].name;
    }
  }
}

TEST(TransformerGraph, AStageHoldsNoMoreMicroBatchesThan1F1BAllows) {
  constexpr int kStages = 3;
  constexpr int kBatches = 6;
  for (int stage = 0; stage < kStages; ++stage) {
    auto const graph =
        transformer_graph(small(), {.pipeline_stages = kStages, .stage = stage, .micro_batches = kBatches});
    test::Reachability const reach(graph);
    auto const layer = "layer" + std::to_string(stage);
    auto const forward = [&](int batch) { return find(graph, layer + ".attn_norm.m" + std::to_string(batch)); };
    auto const backward = [&](int batch) { return find(graph, layer + ".attn_norm.dx.m" + std::to_string(batch)); };
    for (int batch = 0; batch + kStages - stage < kBatches; ++batch) {
      EXPECT_TRUE(reach.before(backward(batch), forward(batch + kStages - stage)));
      EXPECT_FALSE(reach.before(backward(batch), forward(batch + kStages - stage - 1)));
      EXPECT_TRUE(reach.before(forward(batch + kStages - stage - 1), backward(batch)));
    }
  }
}

TEST(TransformerGraph, ATiedTableHasOneGradient) {
  auto shape = transformer_preset("gpt2-small");
  shape.layers = 2;
  auto const one = transformer_graph(shape, {.data_ranks = 2});
  EXPECT_EQ(bytes_of(one, CollectiveKind::all_reduce, "replica"), 2 * parameter_count(shape));
  auto const ends = transformer_graph(shape, {.pipeline_stages = 2, .stage = 1});
  EXPECT_EQ(bytes_of(ends, CollectiveKind::all_reduce, "ends"), 2 * shape.vocabulary * shape.width);
}

void expect_program_order(OpGraph const& graph) {
  auto const order = topological_order(graph);
  for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], static_cast<OpId>(i)) << graph.ops[i].name;
}

TEST(TransformerGraph, EveryCombinationIsAGraph) {
  auto shape = small();
  shape.layers = 2;
  std::vector<std::vector<std::string>> const recomputes = {{}, {"layer"}, {"attention", "attn_norm"}};
  int count = 0;
  for (auto const strategy : {TrainingStrategy::ddp, TrainingStrategy::zero1, TrainingStrategy::zero2,
                              TrainingStrategy::zero3, TrainingStrategy::hsdp}) {
    for (int bits = 0; bits < 1 << 7; ++bits) {
      auto const bit = [&](int which) { return (bits >> which & 1) != 0; };
      TransformerPlan plan{.strategy = strategy, .data_ranks = bit(0) ? 4 : 1, .tensor_ranks = bit(1) ? 2 : 1};
      if (strategy == TrainingStrategy::hsdp)
        plan.shard_ranks = plan.data_ranks / (bit(6) ? 1 : 2) + plan.data_ranks % 2;
      if (plan.shard_ranks > plan.data_ranks) plan.shard_ranks = plan.data_ranks;
      plan.pipeline_stages = bit(2) ? 2 : 1;
      plan.micro_batches = bit(3) ? 3 : 1;
      plan.clipping = bit(4);
      plan.merged = bit(5);
      plan.reduction_bytes = bit(6) ? 4 : 0;
      auto const gathers = strategy == TrainingStrategy::zero3 || strategy == TrainingStrategy::hsdp;
      plan.layers_gathered_once = gathers && bit(4) ? 1 : 0;
      plan.recompute = recomputes[static_cast<std::size_t>(bits % 3)];
      shape.tied_embeddings = bits % 5 == 0;
      shape.biases = bits % 7 == 0;
      shape.gated_ffn = bits % 2 == 0;
      shape.positions = bits % 5 == 1 ? 64 : 0;
      for (plan.stage = 0; plan.stage < plan.pipeline_stages; ++plan.stage) {
        SCOPED_TRACE(std::string(to_string(strategy)) + " " + std::to_string(bits) + " stage " +
                     std::to_string(plan.stage));
        auto const graph = transformer_graph(shape, plan);
        ASSERT_NO_THROW(check_graph(graph));
        expect_program_order(graph);
        EXPECT_EQ(test::unordered_use(graph), "");
        if (testing::Test::HasFailure()) return;
        ++count;
      }
    }
  }
  EXPECT_EQ(count, 5 * 192);
}

TEST(TransformerGraph, LargeGraphsAreMadeInAMoment) {
  auto const graph = transformer_graph(transformer_preset("llama3-405b"), {.strategy = TrainingStrategy::zero3,
                                                                           .data_ranks = 128,
                                                                           .tensor_ranks = 8,
                                                                           .pipeline_stages = 1,
                                                                           .micro_batches = 8,
                                                                           .merged = false});
  EXPECT_GT(graph.ops.size(), 40'000u);
  EXPECT_NO_THROW(check_graph(graph));
}

TEST(TransformerGraph, WhatIsWrongIsNamed) {
  struct Case {
    std::function<void(TransformerShape&, TransformerPlan&)> spoil;
    std::vector<std::string> named;
  };
  std::vector<Case> const cases = {
      {[](auto& shape, auto&) { shape.layers = 0; }, {"layers is 0"}},
      {[](auto& shape, auto&) { shape.width = -64; }, {"width is -64"}},
      {[](auto& shape, auto&) { shape.heads = 7; }, {"width is 64", "heads 7"}},
      {[](auto& shape, auto&) { shape.kv_heads = 3; }, {"heads is 8", "kv_heads 3"}},
      {[](auto& shape, auto&) { shape.positions = 16; }, {"sequence is 32", "16 positions"}},
      {[](auto& shape, auto&) { shape.vocabulary = 0; }, {"vocabulary is 0"}},
      {[](auto& shape, auto&) { shape.state_bytes = -1; }, {"state_bytes is -1"}},
      {[](auto& shape, auto&) { shape.micro_batch = std::int64_t{1} << 60; }, {"a tensor of"}},
      {[](auto& shape, auto&) { shape.ffn_width = std::int64_t{3} << 61; }, {"a tensor of"}},  // twice that overflows
      {[](auto&, auto& plan) { plan.tensor_ranks = 3; }, {"heads is 8", "tensor_ranks 3"}},
      {[](auto&, auto& plan) { plan.tensor_ranks = 8; }, {"kv_heads is 4", "tensor_ranks 8"}},
      {[](auto&, auto& plan) { plan.data_ranks = 0; }, {"data_ranks is 0"}},
      {[](auto&, auto& plan) { plan.data_ranks = 1 << 21; }, {"2097152 data_ranks", "more than"}},
      {[](auto&, auto& plan) { plan.pipeline_stages = 4; }, {"pipeline_stages is 4", "3 layers"}},
      {[](auto&, auto& plan) { plan.stage = 1; }, {"stage is 1"}},
      {[](auto&, auto& plan) { plan.shard_ranks = 2; }, {"shard_ranks is 2", "hsdp"}},
      {[](auto&, auto& plan) { plan.layers_gathered_once = 2; },
       {"layers_gathered_once is 2", "ddp gathers no layers"}},
      {[](auto&, auto& plan) { plan.strategy = TrainingStrategy::hsdp; }, {"shard_ranks is 0"}},
      {[](auto&, auto& plan) {
         plan.strategy = TrainingStrategy::hsdp;
         plan.data_ranks = 8;
         plan.shard_ranks = 3;
       },
       {"data_ranks is 8", "shard_ranks 3"}},
      {[](auto&, auto& plan) { plan.micro_batches = 0; }, {"micro_batches is 0"}},
      {[](auto&, auto& plan) { plan.micro_batches = 1 << 20; }, {"1048576 micro_batches"}},
      {[](auto&, auto& plan) { plan.recompute = {"norm"}; }, {"\"norm\"", "attn_norm"}},
      {[](auto&, auto& plan) { plan.reduction_bytes = -4; }, {"reduction_bytes is -4"}},
  };
  for (auto const& [spoil, named] : cases) {
    auto shape = small();
    TransformerPlan plan;
    spoil(shape, plan);
    try {
      static_cast<void>(transformer_graph(shape, plan));
      ADD_FAILURE() << named.front() << ": nothing was thrown";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_TRUE(contains(error.what(), "Transformer small")) << error.what();
      for (auto const& part : named) EXPECT_TRUE(contains(error.what(), part)) << error.what();
    }
  }
  EXPECT_THROW(static_cast<void>(transformer_preset("llama9")), Error);
}

}  // namespace
}  // namespace weft
