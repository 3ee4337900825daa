#include "weft/recompute.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "graph_facts.hpp"
#include "random_graph.hpp"
#include "scheduler/graph/at.hpp"
#include "weft/error.hpp"
#include "weft/schedule.hpp"
#include "weft/transformer_graph.hpp"

namespace weft::test {
namespace {

CostModel unit_model() {
  return CostModel(unit_cluster());
}

/// Seconds of what is not a collective, and of collectives.
double seconds_of(OpGraph const& graph, CostModel const& model) {
  double sum = 0;
  for (OpNode const& op : graph.ops) {
    if (op.kind != OpKind::collective) sum += model.operator_seconds(op);
  }
  return sum;
}

/// A chain forward and back: each step of the way back reads what the same step of the way forth made.
OpGraph there_and_back(
    int steps, std::function<std::string(int)> const& name = [](int i) { return "f" + std::to_string(i); }) {
  OpGraph graph{.name = "there and back"};
  TensorId input = graph.add(OpTensor{.name = "input", .bytes = 1, .kept = true});
  std::vector<TensorId> made{input};
  for (int i = 0; i < steps; ++i) {
    TensorId const out = graph.add(OpTensor{.name = "t" + std::to_string(i), .bytes = 10});
    graph.add(OpNode{.name = name(i), .flops = 1, .reads = {made.back()}, .writes = {out}});
    made.push_back(out);
  }
  TensorId gradient = made.back();
  for (int i = steps; i-- > 0;) {
    TensorId const out = graph.add(OpTensor{.name = "g" + std::to_string(i), .bytes = 1});
    std::vector<TensorId> reads{made[at(i)]};
    if (gradient != reads.front()) reads.push_back(gradient);
    graph.add(OpNode{.name = "b" + std::to_string(i), .flops = 2, .reads = reads, .writes = {out}});
    gradient = out;
  }
  return graph;
}

TEST(Recompute, NothingIsRunAgainWhereTheStepFits) {
  auto const graph = there_and_back(6);
  auto const peak = serial_peak_bytes(graph, unit_model());
  auto const plan = plan_recompute(graph, unit_model(), {.budget = peak});
  EXPECT_TRUE(plan.again.empty());
  EXPECT_EQ(plan.seconds, 0);
  EXPECT_EQ(plan.peak_bytes, peak);
  EXPECT_EQ(plan.graph.ops.size(), graph.ops.size());
}

TEST(Recompute, ChainsFitHalfOfTheirMemory) {
  auto const graph = there_and_back(16);
  auto const peak = serial_peak_bytes(graph, unit_model());
  for (std::int64_t const budget : {peak - 1, peak * 3 / 4, peak / 2}) {
    auto const plan = plan_recompute(graph, unit_model(), {.budget = budget});
    check_graph(plan.graph);
    EXPECT_LE(plan.peak_bytes, budget);
    EXPECT_LE(serial_peak_bytes(plan.graph, unit_model()), budget);
    EXPECT_EQ(plan.seconds, static_cast<double>(plan.again.size()));
    EXPECT_NEAR(seconds_of(plan.graph, unit_model()), seconds_of(graph, unit_model()) + plan.seconds, 1e-9);
    for (OpId const op : plan.again) EXPECT_EQ(graph.ops[at(op)].name.front(), 'f');
  }
}

/// The names of what is run again, with no more than `budget`; empty where none was found, with the error's words.
std::vector<std::string> chosen(OpGraph const& graph, RecomputeOptions const& options, std::string& words) {
  std::vector<std::string> names;
  try {
    for (OpId const op : plan_recompute(graph, unit_model(), options).again) names.push_back(graph.ops[at(op)].name);
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    words = error.what();
  }
  return names;
}

TEST(Recompute, RandomOperatorsAreRunAgainOnlyWhereTheyAreMarked) {
  auto graph = there_and_back(4, [](int i) { return "layer" + std::to_string(i) + ".Dropout"; });
  std::string words;
  EXPECT_TRUE(chosen(graph, {.budget = 38}, words).empty());
  EXPECT_NE(words.find("draws random numbers"), std::string::npos) << words;
  EXPECT_NE(words.find("a budget of 38 bytes is not met"), std::string::npos) << words;
  graph.ops[1].repeatable = true;
  EXPECT_EQ(chosen(graph, {.budget = 38}, words), std::vector<std::string>{"layer1.Dropout"});
  for (OpNode& op : graph.ops) op.name = "layernorm." + op.name.substr(0, 6);
  graph.ops[1].repeatable = false;
  auto const others = chosen(graph, {.budget = 38}, words);
  EXPECT_FALSE(others.empty());
  EXPECT_EQ(std::count(others.begin(), others.end(), graph.ops[1].name), 0);
}

TEST(Recompute, CollectivesAreRunAgainOnlyWhereThatIsAllowed) {
  auto graph = there_and_back(4);
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  for (std::size_t op = 0; op < 4; ++op) {
    graph.ops[op].kind = OpKind::collective;
    graph.ops[op].collective = {CollectiveKind::all_to_all, 10, world};
  }
  std::string words;
  EXPECT_TRUE(chosen(graph, {.budget = 38}, words).empty());
  EXPECT_NE(words.find("is a collective"), std::string::npos) << words;
  EXPECT_FALSE(chosen(graph, {.budget = 38, .collectives = true}, words).empty());
}

TEST(Recompute, SecondRunsStandRightBeforeTheirUseAndHaveNames) {
  auto const graph = there_and_back(4);
  auto const step = recompute_operators(graph, unit_model(), {1}, {.budget = 38});
  check_graph(step.graph);
  ASSERT_EQ(step.graph.ops.size(), graph.ops.size() + 1);
  auto const again = std::find_if(step.graph.ops.begin(), step.graph.ops.end(),
                                  [](OpNode const& op) { return op.name == "f1.again"; });
  ASSERT_NE(again, step.graph.ops.end());
  EXPECT_EQ(step.graph.tensors[at(again->writes.front())].name, "t1.again");
  ASSERT_NE(again + 1, step.graph.ops.end());
  EXPECT_EQ((again + 1)->name, "b2");
  EXPECT_EQ((again + 1)->reads.front(), again->writes.front());
  EXPECT_THROW(static_cast<void>(recompute_operators(graph, unit_model(), {99})), Error);
}

TEST(Recompute, WhatIsWrittenOverIsReadBefore) {
  // f1 reads a weight that an update writes over, before or after the second run of f1 would read it.
  for (bool const early : {false, true}) {
    auto graph = there_and_back(4);
    TensorId const weight = graph.add(OpTensor{.name = "weight", .bytes = 5, .kept = true});
    TensorId const updated = graph.add(OpTensor{.name = "updated", .bytes = 5, .kept = true, .alias_of = weight});
    graph.ops[1].reads.push_back(weight);
    OpNode update{.name = "update", .kind = OpKind::update, .reads = {weight}, .writes = {updated}, .after = {1}};
    if (early) {
      graph.ops[4].reads.push_back(updated);  // backward's first
    } else {
      update.reads.push_back(graph.ops[7].writes.front());
    }
    OpId const id = graph.add(update);
    auto const step = recompute_operators(graph, unit_model(), {1}, {.budget = 43});
    check_graph(step.graph);
    if (early) {
      EXPECT_TRUE(step.again.empty());
      continue;
    }
    ASSERT_EQ(step.again, std::vector<OpId>{1});
    auto const named = [&](std::string const& name) {
      auto const found =
          std::find_if(step.graph.ops.begin(), step.graph.ops.end(), [&](OpNode const& op) { return op.name == name; });
      return static_cast<OpId>(found - step.graph.ops.begin());
    };
    EXPECT_TRUE(Reachability(step.graph).before(named("f1.again"), named(graph.ops[at(id)].name)));
  }
}

/// The cheapest of all selections that fit, by trying every one.
std::optional<double> least_seconds(OpGraph const& graph, CostModel const& model, std::int64_t budget) {
  std::vector<OpId> candidates;
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].kind == OpKind::compute || graph.ops[op].kind == OpKind::copy) {
      candidates.push_back(static_cast<OpId>(op));
    }
  }
  std::optional<double> least;
  for (unsigned mask = 0; mask < 1u << candidates.size(); ++mask) {
    std::vector<OpId> again;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if ((mask >> i & 1) != 0) again.push_back(candidates[i]);
    }
    auto const step = recompute_operators(graph, model, again, {.budget = budget});
    if (step.peak_bytes <= budget && (!least || step.seconds < *least)) least = step.seconds;
  }
  return least;
}

/// Forward and backward with operators that read by chance what was made before, and later what forward made.
OpGraph random_step(std::mt19937& random, int steps) {
  auto const up_to = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  OpGraph graph{.name = "random step"};
  std::vector<TensorId> made{graph.add(OpTensor{.name = "input", .bytes = 2, .kept = true})};
  auto const add = [&](std::string const& name, std::vector<TensorId> reads) {
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    OpTensor tensor{.name = name, .bytes = 1 + static_cast<std::int64_t>(up_to(20))};
    if (up_to(5) == 0) tensor.in_place_of = reads.back();
    TensorId const out = graph.add(tensor);
    graph.add(
        OpNode{.name = "make " + name, .flops = static_cast<double>(1 + up_to(9)), .reads = reads, .writes = {out}});
    return out;
  };
  for (int i = 0; i < steps; ++i) {
    made.push_back(add("f" + std::to_string(i), {made.back(), made[up_to(made.size())]}));
  }
  TensorId gradient = made.back();
  for (int i = steps; i-- > 0;) {
    gradient = add("b" + std::to_string(i), {gradient, made[at(i)], made[up_to(at(i) + 1)]});
  }
  graph.tensors[at(gradient)].kept = true;
  return graph;
}

TEST(Recompute, CostsLittleMoreThanTheCheapestOfAllSelections) {
  std::mt19937 random(1);
  int found = 0;
  int possible = 0;
  double sum = 0;
  double worst = 1;
  for (int i = 0; i < 20; ++i) {
    auto const graph = random_step(random, 5);
    auto const peak = serial_peak_bytes(graph, unit_model());
    for (double const share : {0.95, 0.85, 0.75}) {
      auto const budget = static_cast<std::int64_t>(share * static_cast<double>(peak));
      auto const least = least_seconds(graph, unit_model(), budget);
      if (!least) continue;
      ++possible;
      try {
        auto const plan = plan_recompute(graph, unit_model(), {.budget = budget});
        EXPECT_LE(plan.peak_bytes, budget);
        // Ours may read a second run from another place on, too.
        double const ratio = *least > 0 ? plan.seconds / *least : (plan.seconds > 0 ? 10 : 1);
        sum += ratio;
        worst = std::max(worst, ratio);
        ++found;
      } catch (Error const& error) {
        EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      }
    }
  }
  RecordProperty("possible", possible);
  std::printf("%d of %d budgets met, %.4f times the cheapest on the mean, %.3f at the worst\n", found, possible,
              sum / found, worst);
  EXPECT_GT(possible, 30);
  EXPECT_GE(found, possible * 97 / 100);
  EXPECT_LE(sum / found, 1.02);
}

TEST(Recompute, NeverDearerThanRecomputingWholeLayers) {
  CostModel const model(cluster_named("a100-400g"));
  for (auto const strategy : {TrainingStrategy::ddp, TrainingStrategy::zero3}) {
    for (std::string const name : {"gpt2-small", "llama2-7b"}) {
      TransformerPlan plan{.strategy = strategy, .data_ranks = 16};
      auto shape = transformer_preset(name);
      shape.layers = 8;
      auto const kept = transformer_graph(shape, plan);
      plan.recompute = {"layer"};
      auto const layers = transformer_graph(shape, plan);
      double const theirs = seconds_of(layers, model) - seconds_of(kept, model);
      auto const budget = serial_peak_bytes(layers, model);
      auto const ours = plan_recompute(kept, model, {.budget = budget});
      std::printf("%s, %s: %.3f ms beside %.3f, %.2f GB beside %.2f (%.2f as given)\n", name.c_str(),
                  std::string(to_string(strategy)).c_str(), ours.seconds * 1e3, theirs * 1e3,
                  static_cast<double>(ours.peak_bytes) / 1e9, static_cast<double>(budget) / 1e9,
                  static_cast<double>(ours.peak_before) / 1e9);
      EXPECT_LE(ours.seconds, theirs * (1 + 1e-9));
      EXPECT_LE(serial_peak_bytes(ours.graph, model), budget);
    }
  }
}

}  // namespace
}  // namespace weft::test
