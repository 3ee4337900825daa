#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "importers/chakra/nodes.hpp"
#include "importers/traces.hpp"
#include "scheduler/graph_facts.hpp"
#include "weft/import_chakra.hpp"

namespace weft {
namespace {

using test::op_named;

ImportedChakra import_text(std::string const& json) {
  std::istringstream in(json);
  return import_chakra(in, "et.json");
}

OpId id_of(OpGraph const& graph, std::string const& name) {
  return static_cast<OpId>(op_named(graph, name));
}

double flops_of(OpGraph const& graph) {
  double flops = 0;
  for (auto const& op : graph.ops) flops += op.flops;
  return flops;
}

std::string tensor(int storage, int elements, int offset = 0) {
  return "[" + std::to_string(100 + storage) + "," + std::to_string(storage) + "," + std::to_string(offset) + "," +
         std::to_string(elements) + R"(,4,"cpu"])";
}

std::string node(int id, int parent, std::string const& name, std::string const& inputs, std::string const& outputs,
                 std::string const& schema = "", std::string const& more = "") {
  return R"({"id":)" + std::to_string(id) + R"(,"ctrl_deps":)" + std::to_string(parent) + R"(,"name":")" + name +
         R"(","inputs":{"values":[)" + inputs + R"(]},"outputs":{"values":[)" + outputs +
         R"(]},"attrs":[{"name":"op_schema","value":")" + schema + R"("})" + more + "]}";
}

std::string trace_of(std::vector<std::string> const& nodes) {
  std::string json = R"({"schema":"1.1.1-chakra.0.0.4","nodes":[)";
  json += "\n" + node(1, 1, "[pytorch|profiler|execution_trace|process]", "", "");
  for (auto const& each : nodes) json += ",\n" + each;
  return json + "]}";
}

constexpr char const* kAdd = "aten::add(Tensor self, Tensor other) -> Tensor";
constexpr char const* kAddInPlace = "aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)";

TEST(ImportChakra, ATraceOfDdpOnGloo) {
  auto const imported = import_text(test::sample("chakra_ddp.json"));
  auto const& graph = imported.graph;
  EXPECT_TRUE(imported.report.warnings.empty()) << to_string(imported.report);
  EXPECT_EQ(imported.report.collectives, 1);
  auto const& collective = graph.ops[op_named(graph, "c10d::allreduce_")];
  EXPECT_EQ(collective.collective.kind, CollectiveKind::all_reduce);
  EXPECT_EQ(collective.collective.bytes, 4 * (64 * 256 + 256 + 256 * 64 + 64));
  EXPECT_EQ(graph.groups.front().sets, (std::vector<std::vector<int>>{{0, 1}}));
  // Two products in forward, and three in backward: the input needs no gradient.
  EXPECT_DOUBLE_EQ(flops_of(graph), 5 * 2.0 * 16 * 64 * 256);

  EXPECT_EQ(test::unordered_use(graph), "");
  test::Reachability const reach(graph);
  int updates = 0;
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].kind != OpKind::update) continue;
    ++updates;
    EXPECT_TRUE(reach.before(id_of(graph, "c10d::allreduce_"), static_cast<OpId>(op)));
    EXPECT_TRUE(reach.before(id_of(graph, "aten::linear"), static_cast<OpId>(op)));
    ASSERT_EQ(graph.ops[op].writes.size(), 1u);
    EXPECT_TRUE(graph.tensors[static_cast<std::size_t>(graph.ops[op].writes.front())].kept);
  }
  EXPECT_EQ(updates, 4);
  EXPECT_TRUE(reach.before(id_of(graph, "aten::mm#3"), id_of(graph, "c10d::allreduce_")));
  EXPECT_FALSE(reach.before(id_of(graph, "c10d::allreduce_"), id_of(graph, "aten::mm#3")));
}

TEST(ImportChakra, ATraceOfFsdp2OnGloo) {
  auto const imported = import_text(test::sample("chakra_fsdp2.json"));
  auto const& graph = imported.graph;
  EXPECT_TRUE(imported.report.warnings.empty()) << to_string(imported.report);
  std::int64_t const parameters = 4 * (64 * 256 + 256);
  EXPECT_EQ(graph.ops[op_named(graph, "c10d::_allgather_base_")].collective.bytes, parameters);
  EXPECT_EQ(graph.ops[op_named(graph, "c10d::_reduce_scatter_base_")].collective.bytes, parameters);
  EXPECT_EQ(test::unordered_use(graph), "");
  test::Reachability const reach(graph);
  EXPECT_TRUE(reach.before(id_of(graph, "c10d::_allgather_base_"), id_of(graph, "aten::linear")));
  EXPECT_TRUE(reach.before(id_of(graph, "aten::mm"), id_of(graph, "c10d::_reduce_scatter_base_")));
  EXPECT_TRUE(reach.before(id_of(graph, "c10d::_reduce_scatter_base_"), id_of(graph, "aten::add_")));
  EXPECT_EQ(graph.ops[op_named(graph, "aten::add_")].kind, OpKind::update);
}

TEST(ImportChakra, AStorageIsATensorAndWhatIsWrittenThereALaterState) {
  auto const imported = import_text(trace_of({
      node(2, 1, "aten::add", tensor(1, 10) + "," + tensor(2, 10), tensor(3, 10), kAdd),
      node(3, 1, "aten::view", tensor(3, 10), tensor(3, 5, 5), "aten::view(Tensor(a) self) -> Tensor(a)"),
      node(4, 1, "aten::mul", tensor(3, 5, 5), tensor(4, 5), kAdd),
      node(5, 1, "aten::add_", tensor(3, 10) + "," + tensor(4, 5), tensor(3, 10), kAddInPlace),
      node(6, 1, "aten::neg", tensor(4, 5), tensor(3, 20), kAdd),  // the number stands for other memory
  }));
  auto const& graph = imported.graph;
  ASSERT_EQ(graph.ops.size(), 4u);
  EXPECT_EQ(imported.report.free_entries, 2);  // the process and the view
  auto const& written = graph.ops[2].writes;
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(graph.tensors[static_cast<std::size_t>(written[0])].alias_of, graph.ops[0].writes[0]);
  EXPECT_EQ(graph.ops[2].after, (std::vector<OpId>{0, 1}));
  EXPECT_EQ(graph.tensors[static_cast<std::size_t>(written[0])].bytes, 40);
  auto const& other = graph.tensors[static_cast<std::size_t>(graph.ops[3].writes[0])];
  EXPECT_EQ(other.alias_of, kNone);
  EXPECT_EQ(other.bytes, 80);
  EXPECT_FALSE(other.kept);
  EXPECT_TRUE(graph.tensors[static_cast<std::size_t>(graph.ops[0].reads[0])].kept);
}

TEST(ImportChakra, WhatManyReadWaitsForEachOnce) {
  constexpr int kReaders = 60'000;
  std::vector<std::string> nodes;
  for (int i = 0; i < kReaders; ++i) {
    auto const both = tensor(1, 10) + "," + tensor(2, 10);
    nodes.push_back(node(i + 2, 1, i % 2 == 0 ? "aten::add" : "c10d::allreduce_", both, tensor(i + 3, 10), kAdd));
  }
  nodes.push_back(node(kReaders + 2, 1, "aten::swap_", tensor(1, 10) + "," + tensor(2, 10), "",
                       "aten::swap_(Tensor(a!) self, Tensor(b!) other) -> ()"));
  auto const graph = import_text(trace_of(nodes)).graph;
  auto const& after = graph.ops.back().after;
  ASSERT_EQ(after.size(), static_cast<std::size_t>(kReaders));
  EXPECT_TRUE(std::is_sorted(after.begin(), after.end()));
  EXPECT_EQ(graph.ops.back().writes.size(), 2U);
}

TEST(ImportChakra, WhatIsMadeWithinAnOperatorIsReadFromIt) {
  auto const imported = import_text(trace_of({
      node(2, 1, "aten::outer", tensor(1, 10), tensor(2, 10), kAdd),
      node(3, 2, "aten::inner", tensor(1, 10), tensor(5, 10), kAdd),
      node(4, 1, "aten::reader", tensor(5, 10), tensor(6, 10), kAdd),
  }));
  ASSERT_EQ(imported.graph.ops.size(), 2u);
  EXPECT_EQ(imported.graph.ops[0].writes.size(), 2u);
  EXPECT_TRUE(test::Reachability(imported.graph).before(0, 1));
}

TEST(ImportChakra, RecordedArgumentsNameTheGroup) {
  std::string const groups =
      R"("[{\"pg_name\":\"0\",\"ranks\":[],\"group_size\":4},{\"pg_name\":\"9\",\"ranks\":[1,3],\"group_size\":2}]")";
  auto const imported = import_text(trace_of({
      node(2, 1, "## process_group:init ##", groups, ""),
      node(3, 1, "c10d::reduce_scatter_", tensor(1, 10) + "," + tensor(2, 20), tensor(1, 10)),
      node(4, 3, "record_param_comms", "", "", "", R"(,{"name":"pg_name","value":"9"})"),
      node(5, 1, "record_param_comms", tensor(3, 8) + R"(,"broadcast")", "", "", R"(,{"name":"pg_name","value":"0"})"),
  }));
  auto const& graph = imported.graph;
  ASSERT_EQ(graph.ops.size(), 2u);
  EXPECT_EQ(graph.ops[0].collective.bytes, 80);
  EXPECT_EQ(graph.groups[static_cast<std::size_t>(graph.ops[0].collective.group)].sets.front(), (std::vector{1, 3}));
  EXPECT_EQ(graph.ops[1].collective.kind, CollectiveKind::broadcast);
  EXPECT_EQ(graph.groups[static_cast<std::size_t>(graph.ops[1].collective.group)].sets.front(),
            (std::vector{0, 1, 2, 3}));
}

TEST(ImportChakra, SchemasSayWhatIsWritten) {
  EXPECT_EQ(chakra::written_arguments("a::b(Tensor(a!)[] self, int[2] x=[1, 2], *, Tensor(b!) out) -> ()"),
            (std::vector<bool>{true, false, true}));
  EXPECT_EQ(chakra::written_arguments("a::b() -> Tensor(a!)"), std::vector<bool>{});
  EXPECT_EQ(chakra::written_arguments(""), std::vector<bool>{});
  EXPECT_EQ(chakra::written_arguments("a::b(Tensor(a"), std::vector<bool>{});
}

TEST(ImportChakra, WhatIsUnknownIsCounted) {
  auto const imported = import_text(trace_of({
      node(9, 5, "c10d::dance_", tensor(1, 10), tensor(1, 10)),
      node(10, 1, "triton_fused", tensor(1, 10), "", "", R"(,{"name":"kernel_backend","value":"triton"})"),
  }));
  test::expect_names(to_string(imported.report),
                     {"within one that is not there", "unknown kind", "without a group", "compiled kernel"});
  EXPECT_TRUE(test::Reachability(imported.graph).before(0, 1));
}

TEST(ImportChakra, WhatIsWrongIsNamed) {
  std::vector<std::pair<std::string, std::vector<std::string>>> const cases = {
      {"{\n\"nodes\": [\n}", {"et.json", "line 3"}},
      {R"({"nodes": 4})", {"et.json", "\"nodes\""}},
      {R"({"nodes": [4]})", {"node 0", "no JSON object"}},
      {R"({"nodes": [{"name": "x"}]})", {"node 0", "\"id\" is missing"}},
      {R"({"nodes": [{"id": 3, "name": "x"}]})", {"node 3 (x)", "\"ctrl_deps\" is missing"}},
      {trace_of({node(2, 3, "x", "", ""), node(3, 1, "y", "", "")}), {"node 2 (x)", "node 3, which comes later"}},
      {trace_of({node(2, 1, "x", "", ""), node(2, 1, "y", "", "")}), {"node 2 (y)", "its id"}},
      {trace_of({node(2, 1, "x", tensor(1, -5), "", kAdd)}), {"node 2 (x)", "-5 elements"}},
      {trace_of({node(2, 1, "x", R"([1,1,0,4611686018427387904,4,"cpu"])", "", kAdd)}), {"node 2 (x)", "elements"}},
  };
  for (auto const& [json, named] : cases) {
    SCOPED_TRACE(json);
    test::expect_names(test::message_of([&, text = json] { static_cast<void>(import_text(text)); }), named);
  }
}

TEST(ImportChakra, NothingButErrorsComesOfDamage) {
  auto const read = [](std::string const& text) { static_cast<void>(import_text(text)); };
  test::survive_mutations(trace_of({
                              node(2, 1, "c10d::allreduce_", "[" + tensor(1, 10) + "]", tensor(1, 10)),
                              node(3, 2, "record_param_comms", "", "", "", R"(,{"name":"pg_size","value":4})"),
                              node(4, 1, "aten::add_", tensor(1, 10) + "," + tensor(4, 5), tensor(1, 10), kAddInPlace),
                              node(5, 1, "aten::mm", tensor(4, 5), tensor(3, 20), kAdd),
                          }),
                          3000, read);
  test::survive_mutations(test::sample("chakra_ddp.json"), 200, read);
  test::survive_mutations(test::sample("chakra_fsdp2.json"), 200, read);
}

}  // namespace
}  // namespace weft
