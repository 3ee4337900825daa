#include "weft/op_graph.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "scheduler/graph/strided_group.hpp"
#include "weft/error.hpp"
#include "weft/op_graph_json.hpp"

namespace weft {
namespace {

std::string message_of(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "nothing was thrown";
}

void expect_names(std::string const& message, std::vector<std::string> const& parts) {
  for (auto const& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

/// A weight is gathered, used, its gradient reduced, and the weight updated in place.
OpGraph small_graph() {
  OpGraph graph{.name = "small"};
  GroupId const world = graph.add(strided_group("world", {.ranks = 4, .size = 4}));
  TensorId const shard = graph.add(OpTensor{.name = "shard", .bytes = 100, .kept = true});
  TensorId const weight = graph.add(OpTensor{.name = "weight", .bytes = 400});
  TensorId const view = graph.add(OpTensor{.name = "view", .bytes = 400, .alias_of = weight});
  TensorId const grad = graph.add(OpTensor{.name = "grad", .bytes = 400});
  TensorId const scaled = graph.add(OpTensor{.name = "scaled", .bytes = 400, .in_place_of = grad});
  TensorId const grad_shard = graph.add(OpTensor{.name = "grad_shard", .bytes = 100});
  TensorId const updated = graph.add(OpTensor{.name = "updated", .bytes = 100, .kept = true, .alias_of = shard});
  OpId const gather = graph.add(OpNode{.name = "gather",
                                       .kind = OpKind::collective,
                                       .collective = {CollectiveKind::all_gather, 400, world},
                                       .reads = {shard},
                                       .writes = {weight, view}});
  graph.add(
      OpNode{.name = "backward", .flops = 1e9, .memory_bytes = 800, .reads = {view}, .writes = {grad}, .layer = 3});
  graph.add(OpNode{.name = "scale", .seconds = 1e-6, .reads = {grad}, .writes = {scaled}});
  graph.add(OpNode{.name = "reduce",
                   .kind = OpKind::collective,
                   .collective = {CollectiveKind::reduce_scatter, 400, world},
                   .reads = {scaled},
                   .writes = {grad_shard}});
  graph.add(OpNode{.name = "update",
                   .kind = OpKind::update,
                   .memory_bytes = 300,
                   .reads = {grad_shard, shard},
                   .writes = {updated},
                   .after = {gather}});
  return graph;
}

std::string json_of(OpGraph const& graph) {
  std::ostringstream out;
  write_graph(graph, out);
  return out.str();
}

OpGraph graph_of(std::string const& json) {
  std::istringstream in(json);
  return read_graph(in, "g.json");
}

TEST(OpGraph, AWholeStepIsAccepted) {
  EXPECT_NO_THROW(check_graph(small_graph()));
}

TEST(OpGraph, MemoryIsThatOfTheEndOfTheChain) {
  OpGraph graph = small_graph();
  TensorId const second = graph.add(OpTensor{.name = "view of the view", .bytes = 8, .alias_of = 2});
  EXPECT_EQ(memory_of(graph)[static_cast<std::size_t>(second)], 1);
  EXPECT_EQ(memory_of(graph)[6], 0);
}

TEST(OpGraph, TheOrderPutsEveryOperatorBehindWhatItNeeds) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    // Edges run from the lower number to the higher one; numbers are dealt to operators by chance.
    std::size_t const size = 1 + random() % 40;
    std::vector<OpId> dealt(size);
    for (std::size_t i = 0; i < size; ++i) dealt[i] = static_cast<OpId>(i);
    std::shuffle(dealt.begin(), dealt.end(), random);
    OpGraph graph;
    for (std::size_t i = 0; i < size; ++i) graph.add(OpNode{.name = "op" + std::to_string(i)});
    for (std::size_t to = 1; to < size; ++to) {
      for (int edge = 0; edge < 3; ++edge) {
        graph.ops[static_cast<std::size_t>(dealt[to])].after.push_back(dealt[random() % to]);
      }
    }
    auto const order = topological_order(graph);
    ASSERT_EQ(order.size(), size);
    std::vector<std::size_t> place(size);
    for (std::size_t i = 0; i < size; ++i) place[static_cast<std::size_t>(order[i])] = i;
    for (std::size_t op = 0; op < size; ++op) {
      for (OpId const earlier : graph.ops[op].after) EXPECT_LT(place[static_cast<std::size_t>(earlier)], place[op]);
    }
  }
}

TEST(OpGraph, ACycleIsRefusedByTheNamesOfItsOperators) {
  OpGraph graph = small_graph();
  graph.ops[0].after = {3};  // the gather waits for the reduction, which needs the gradient of what is gathered
  auto const message = message_of([&] { check_graph(graph); });
  expect_names(message, {"cycle", "0 (gather)", "1 (backward)", "2 (scale)", "3 (reduce)"});
  EXPECT_EQ(message.find("update"), std::string::npos) << message;
}

/// A part that is made before the whole: what is live would be counted from the whole on.
TEST(OpGraph, MemoryIsNotUsedBeforeItIsThere) {
  OpGraph graph{.name = "gathered in place"};
  TensorId const whole = graph.add(OpTensor{.name = "whole", .bytes = 400});
  TensorId const part = graph.add(OpTensor{.name = "part", .bytes = 100, .alias_of = whole});
  graph.add(OpNode{.name = "cast", .writes = {part}});
  graph.add(OpNode{.name = "gather", .reads = {part}, .writes = {whole}});
  expect_names(message_of([&] { check_graph(graph); }),
               {"operator 0 (cast)", "tensor 1 (part)", "operator 1 (gather)", "tensor 0"});
  graph.ops[0].writes.clear();  // part is there from the beginning, and so has to be the whole
  expect_names(message_of([&] { check_graph(graph); }),
               {"operator 1 (gather)", "tensor 1 (part)", "before operator 1 (gather)", "tensor 0"});
  graph.ops[1].writes = {graph.add(OpTensor{.name = "gathered", .bytes = 400, .alias_of = whole})};
  EXPECT_NO_THROW(check_graph(graph));  // whole is there from the beginning
}

TEST(OpGraph, WhatIsWrongIsNamed) {
  struct Case {
    std::function<void(OpGraph&)> spoil;
    std::vector<std::string> named;
  };
  std::vector<Case> const cases = {
      {[](OpGraph& g) { g.tensors[3].bytes = -5; }, {"tensor 3 (grad)", "-5 bytes"}},
      {[](OpGraph& g) { g.tensors[2].alias_of = 99; }, {"tensor 2 (view)", "no tensor 99"}},
      {[](OpGraph& g) { g.tensors[2].alias_of = 2; }, {"tensor 2 (view)", "own memory"}},
      {[](OpGraph& g) { g.tensors[1].alias_of = 2; }, {"circle"}},
      {[](OpGraph& g) { g.tensors[2].bytes = 401; }, {"tensor 2 (view)", "401 bytes", "which has 400"}},
      {[](OpGraph& g) { g.tensors[4].in_place_of = 0; }, {"tensor 4 (scaled)", "does not read"}},
      {[](OpGraph& g) { g.tensors[4].alias_of = 3; }, {"tensor 4 (scaled)", "both"}},
      {[](OpGraph& g) { g.ops[1].flops = -1; }, {"operator 1 (backward)", "-1 flops"}},
      {[](OpGraph& g) { g.ops[1].memory_bytes = 1e308 * 10; }, {"operator 1 (backward)", "inf memory_bytes"}},
      {[](OpGraph& g) { g.ops[2].seconds = -2; }, {"operator 2 (scale)", "-2 seconds"}},
      {[](OpGraph& g) { g.ops[2].reads.push_back(77); }, {"operator 2 (scale)", "no tensor 77"}},
      {[](OpGraph& g) { g.ops[2].writes.push_back(5); },
       {"operator 3 (reduce)", "grad_shard", "operator 2 (scale) already"}},
      {[](OpGraph& g) { g.ops[2].reads.push_back(4); }, {"operator 2 (scale)", "reads and writes", "scaled"}},
      {[](OpGraph& g) { g.ops[4].after = {-3}; }, {"operator 4 (update)", "no operator -3"}},
      {[](OpGraph& g) { g.ops[0].collective.group = kNone; }, {"operator 0 (gather)", "no group -1"}},
      {[](OpGraph& g) { g.ops[0].collective.bytes = -1; }, {"operator 0 (gather)", "-1 bytes"}},
      {[](OpGraph& g) { g.groups[0].sets.clear(); }, {"operator 0 (gather)", "no ranks"}},
      {[](OpGraph& g) {
         g.groups[0].sets = {{0, 1}, {2}};
       },
       {"group 0 (world)", "2 and of 1"}},
      {[](OpGraph& g) {
         g.groups[0].sets = {{0, 1}, {1, 2}};
       },
       {"group 0 (world)", "rank 1 is in it twice"}},
      {[](OpGraph& g) { g.groups[0].sets = {{}}; }, {"group 0 (world)", "without ranks"}},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    OpGraph graph = small_graph();
    cases[i].spoil(graph);
    auto named = cases[i].named;
    named.push_back("graph small");
    SCOPED_TRACE("case " + std::to_string(i));
    expect_names(message_of([&] { check_graph(graph); }), named);
  }
}

TEST(OpGraphJson, WhatIsWrittenIsReadBack) {
  OpGraph graph = small_graph();
  graph.add(OpGroup{.name = "pairs", .sets = {{0, 3}, {1, 2}}});
  auto const json = json_of(graph);
  EXPECT_NE(json.find(R"("strided":{"ranks":4,"size":4,"stride":1})"), std::string::npos) << json;
  OpGraph const back = graph_of(json);
  EXPECT_EQ(json_of(back), json);
  ASSERT_EQ(back.ops.size(), graph.ops.size());
  EXPECT_EQ(back.ops[1].flops, 1e9);
  EXPECT_EQ(back.ops[1].layer, 3);
  EXPECT_EQ(back.ops[2].seconds, 1e-6);
  EXPECT_EQ(back.ops[4].after, std::vector<OpId>{0});
  EXPECT_EQ(back.ops[4].kind, OpKind::update);
  EXPECT_EQ(back.ops[3].collective.kind, CollectiveKind::reduce_scatter);
  EXPECT_TRUE(back.tensors[0].kept);
  EXPECT_EQ(back.tensors[4].in_place_of, 3);
  EXPECT_EQ(back.tensors[6].alias_of, 0);
  EXPECT_EQ(back.groups[1].sets, graph.groups[1].sets);
}

TEST(OpGraphJson, NamesThatAreMissingOrTwiceAreMadeUnique) {
  OpGraph graph;
  graph.add(OpNode{.name = "x"});
  graph.add(OpNode{.name = "x"});
  graph.add(OpNode{});
  graph.add(OpNode{.name = "op1", .after = {1, 2}});
  OpGraph const back = graph_of(json_of(graph));
  EXPECT_EQ(back.ops[3].after, (std::vector<OpId>{1, 2}));
  EXPECT_EQ(back.ops[3].name, "op1");
  name_uniquely(graph);
  EXPECT_EQ(json_of(graph), json_of(back));
  for (std::size_t op = 0; op < graph.ops.size(); ++op) EXPECT_EQ(graph.ops[op].name, back.ops[op].name);
}

TEST(OpGraphJson, WhatIsWrongIsNamed) {
  struct Case {
    char const* json;
    std::vector<std::string> named;
  };
  std::vector<Case> const cases = {
      {"{\n\"weft_graph\": 1,\n]", {"line 3"}},
      {"", {"not a graph"}},
      {"[]", {"not a JSON object"}},
      {R"({"weft_graph": 2})", {"version"}},
      {R"({"name": "x"})", {"weft_graph", "missing"}},
      {R"({"weft_graph": 1, "nodes": []})", {"unknown key \"nodes\""}},
      {R"({"weft_graph": 1, "ops": 3})", {"\"ops\" is not a list"}},
      {R"({"weft_graph": 1, "ops": [{"kind": "compute"}]})", {"entry 0 of \"ops\"", "\"name\" is missing"}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "compute"}, {"name": "a", "kind": "compute"}]})",
       {"entry 1", "\"a\" too"}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "magic"}]})", {"operator a", "unknown kind \"magic\""}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "compute", "flop": 1}]})",
       {"operator a", "unknown key \"flop\""}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "compute", "flops": "1"}]})", {"operator a", "not a number"}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "compute", "reads": ["t"]}]})",
       {"operator a", "nothing is named \"t\""}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "compute", "reads": [1]}]})", {"operator a", "names"}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "collective"}]})", {"operator a", "\"collective\""}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "compute", "layer": 99999999999}]})",
       {"operator a", "does not fit"}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "compute", "layer": -5}]})",
       {"operator a", "\"layer\" is -5"}},
      {R"({"weft_graph": 1, "tensors": [{"name": "t", "bytes": 1.5}]})", {"tensor t", "whole number"}},
      {R"({"weft_graph": 1, "tensors": [{"name": "t", "bytes": 18446744073709551615}]})", {"tensor t", "does not fit"}},
      {R"({"weft_graph": 1, "tensors": [{"name": "t", "bytes": 1, "kept": 1}]})", {"tensor t", "true nor false"}},
      {R"({"weft_graph": 1, "ops": [{"name": "a", "kind": "compute", "reads": ["t"], "reads": []}]})",
       {"the key \"reads\" twice"}},
      {R"({"weft_graph": 1, "groups": [{"name": "g"}]})", {"group g", "either"}},
      {R"({"weft_graph": 1, "groups": [{"name": "g", "sets": [1]}]})", {"group g", "lists of ranks"}},
      {R"({"weft_graph": 1, "groups": [{"name": "g", "strided": {"ranks": 6, "size": 4}}]})", {"group g", "6 ranks"}},
      {R"({"weft_graph": 1, "groups": [{"name": "g", "strided": {"ranks": 2000000000, "size": 65536, "stride": 65536}}]})",
       {"group g"}},
  };
  for (auto const& [json, named] : cases) {
    SCOPED_TRACE(json);
    auto const message = message_of([&, text = json] { static_cast<void>(graph_of(text)); });
    expect_names(message, named);
  }
}

TEST(OpGraphJson, DeepNestingIsRefused) {
  std::string const deep = std::string(300'000, '[') + std::string(300'000, ']');
  expect_names(
      message_of([&] {
        static_cast<void>(graph_of(R"({"weft_graph": 1, "groups": [{"name": "g", "sets": [[)" + deep + "]]}]}"));
      }),
      {"g.json", "nested deeper than 100"});
  std::string const quoted(200, '[');
  EXPECT_EQ(graph_of(R"({"weft_graph": 1, "name": "\\\"[)" + quoted + "\"}").name, "\\\"[" + quoted);
}

TEST(StridedGroup, CutsAMeshAlongOneDimension) {
  auto const group = strided_group("g", {.ranks = 8, .size = 2, .stride = 4});
  EXPECT_EQ(group.sets, (std::vector<std::vector<int>>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  auto const back = strided_sets(group);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->stride, 4);
  EXPECT_FALSE(strided_sets({.name = "g", .sets = {{0, 2}, {3, 1}}}));
}

}  // namespace
}  // namespace weft
