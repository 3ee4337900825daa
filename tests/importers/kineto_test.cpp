#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "importers/traces.hpp"
#include "weft/import_kineto.hpp"
#include "weft/plan_diff.hpp"

namespace weft {
namespace {

using test::op_named;

ImportedTrace import_text(std::string const& json) {
  std::istringstream in(json);
  return import_kineto(in, "trace.json");
}

bool waits_for(OpGraph const& graph, std::string const& later, std::string const& earlier) {
  auto const& after = graph.ops[op_named(graph, later)].after;
  return std::find(after.begin(), after.end(), static_cast<OpId>(op_named(graph, earlier))) != after.end();
}

double seconds_of_lane(ImportedTrace const& trace, int lane) {
  double seconds = 0;
  for (std::size_t op = 0; op < trace.graph.ops.size(); ++op) {
    if (trace.lanes[op] == lane) seconds += *trace.graph.ops[op].seconds;
  }
  return seconds;
}

std::string event(std::string const& name, std::string const& category, std::string const& tid, double start,
                  double duration, std::string const& args = "{}", std::string const& pid = "1") {
  std::ostringstream out;
  out << R"({"ph":"X","name":")" << name << R"(","cat":")" << category << R"(","pid":)" << pid << R"(,"tid":)" << tid
      << R"(,"ts":)" << start << R"(,"dur":)" << duration << R"(,"args":)" << args << "}";
  return out.str();
}

std::string trace_of(std::vector<std::string> const& events) {
  std::string json = R"({"distributedInfo":{"world_size":4,"pg_config":[{"pg_name":"0","ranks":[0,1,2,3]},)"
                     R"({"pg_name":"7","ranks":[1,3]}]},"traceEvents":[)";
  for (std::size_t i = 0; i < events.size(); ++i) json += (i > 0 ? ",\n" : "\n") + events[i];
  return json + "]}";
}

/// A thread launches two kernels, a collective on a stream of its own, and one that a stream wait makes wait for it.
std::string gpu_trace() {
  return trace_of({
      event("ProfilerStep#3", "user_annotation", "5", 0, 300),
      event("aten::mm", "cpu_op", "5", 10, 20),
      event("cudaLaunchKernel", "cuda_runtime", "5", 15, 5, R"({"correlation":11})"),
      event("aten::add", "cpu_op", "5", 40, 10),
      event("aten::empty", "cpu_op", "5", 42, 2),
      event("c10d::allreduce_", "cpu_op", "5", 60, 30),
      event("record_param_comms", "cpu_op", "5", 62, 20,
            R"({"Collective name":"allreduce","In msg nelems":1000,"Out msg nelems":1000,"dtype":"BFloat16",)"
            R"("Group size":2,"Process Group Name":"7","Process Group Ranks":"[1, 3]"})"),
      event("nccl:all_reduce", "user_annotation", "5", 64, 10),
      event("cudaLaunchKernelExC", "cuda_runtime", "5", 65, 5, R"({"correlation":12})"),
      event("cudaLaunchKernel", "cuda_runtime", "5", 100, 5, R"({"correlation":13})"),
      event("cudaDeviceSynchronize", "cuda_runtime", "5", 110, 140),
      event("gemm", "kernel", "7", 30, 50, R"({"correlation":11,"stream":7,"device":0})", "0"),
      event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", "kernel", "20", 90, 100,
            R"({"correlation":12,"stream":20,"device":0})", "0"),
      event("Stream Wait Event", "cuda_sync", "7", 120, 0, R"({"stream":7,"wait_on_stream":20})", "0"),
      event("update", "kernel", "7", 195, 40, R"({"correlation":13,"stream":7,"device":0})", "0"),
  });
}

TEST(ImportKineto, AGpuTraceIsTakenApart) {
  auto const trace = import_text(gpu_trace());
  auto const& graph = trace.graph;
  auto const& collective = graph.ops[op_named(graph, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)")];
  EXPECT_EQ(collective.kind, OpKind::collective);
  EXPECT_EQ(collective.collective.kind, CollectiveKind::all_reduce);
  EXPECT_EQ(collective.collective.bytes, 2000);
  EXPECT_EQ(graph.groups[static_cast<std::size_t>(collective.collective.group)].sets,
            (std::vector<std::vector<int>>{{1, 3}}));
  EXPECT_EQ(trace.report.collectives, 1);
  EXPECT_DOUBLE_EQ(*collective.seconds, 100e-6);
  EXPECT_TRUE(waits_for(graph, "gemm", "cudaLaunchKernel"));
  EXPECT_TRUE(waits_for(graph, collective.name, "gemm"));
  EXPECT_TRUE(waits_for(graph, "update", collective.name));
  EXPECT_TRUE(waits_for(graph, "update", "gemm"));
  EXPECT_TRUE(waits_for(graph, "cudaDeviceSynchronize", "update"));
  EXPECT_DOUBLE_EQ(*graph.ops[op_named(graph, "cudaDeviceSynchronize")].seconds, 15e-6);  // what is not waiting
  // aten::mm launches: what is left of it; aten::add does not: it is one, with what lies within.
  EXPECT_DOUBLE_EQ(*graph.ops[op_named(graph, "aten::mm")].seconds, 15e-6);
  EXPECT_DOUBLE_EQ(*graph.ops[op_named(graph, "aten::add")].seconds, 10e-6);
  for (auto const& op : graph.ops) EXPECT_NE(op.name, "aten::empty");
  EXPECT_EQ(trace.streams[static_cast<std::size_t>(trace.lanes[op_named(graph, "gemm")])], "stream 7 of device 0");
  EXPECT_TRUE(trace.report.warnings.empty()) << to_string(trace.report);
}

TEST(ImportKineto, WaitsAreForTheLastOfAStream) {
  auto const kernel = [](std::string const& name, int stream, double start, double duration) {
    auto const number = std::to_string(stream);
    return event(name, "kernel", number, start, duration, R"({"stream":)" + number + "}", "0");
  };
  auto const graph =
      import_text(trace_of({
                      kernel("a", 7, 0, 10),
                      kernel("b", 7, 10, 10),
                      kernel("c", 8, 5, 10),
                      kernel("late", 8, 20, 100),
                      event("Stream Wait Event", "cuda_sync", "9", 22, 0, R"({"stream":9,"wait_on_stream":7})", "0"),
                      event("Stream Wait Event", "cuda_sync", "7", 22, 0, R"({"stream":7,"wait_on_stream":10})", "0"),
                      event("Stream Wait Event", "cuda_sync", "10", 22, 0, R"({"stream":10,"wait_on_stream":7})", "0"),
                      kernel("d", 9, 30, 10),
                      kernel("e", 7, 30, 5),
                      event("cudaDeviceSynchronize", "cuda_runtime", "1", 20, 25),
                      event("cudaStreamSynchronize", "cuda_runtime", "1", 46, 1),
                  }))
          .graph;
  EXPECT_TRUE(waits_for(graph, "d", "b"));
  EXPECT_FALSE(waits_for(graph, "d", "a"));
  EXPECT_EQ(graph.ops[op_named(graph, "e")].after, std::vector<OpId>{static_cast<OpId>(op_named(graph, "b"))});
  for (auto const* const last : {"c", "d", "e"}) EXPECT_TRUE(waits_for(graph, "cudaDeviceSynchronize", last)) << last;
  EXPECT_FALSE(waits_for(graph, "cudaDeviceSynchronize", "b"));
  EXPECT_FALSE(waits_for(graph, "cudaDeviceSynchronize", "late"));
  EXPECT_TRUE(waits_for(graph, "cudaStreamSynchronize", "d"));
  EXPECT_FALSE(waits_for(graph, "cudaStreamSynchronize", "e"));
}

TEST(ImportKineto, ManyWaitsAreReadInAMoment) {
  std::vector<std::string> events;
  for (int i = 0; i < 30'000; ++i) {
    events.push_back(event("gemm", "kernel", "7", 10 * i, 5, R"({"stream":7})", "0"));
    events.push_back(
        event("Stream Wait Event", "cuda_sync", "7", 10 * i, 0, R"({"stream":8,"wait_on_stream":7})", "0"));
    events.push_back(event("cudaStreamSynchronize", "cuda_runtime", "1", 10 * i + 6, 1));
  }
  auto const graph = import_text(trace_of(events)).graph;
  ASSERT_EQ(graph.ops.size(), 60'000U);
  EXPECT_EQ(graph.ops.back().after.size(), 2U);  // its thread's last one, and the kernel
}

TEST(ImportKineto, EventsWithoutANameAreCounted) {
  auto const trace = import_text(trace_of({
      event("aten::mm", "cpu_op", "5", 10, 20),
      event("", "cpu_op", "5", 40, 10),
      R"({"ph":"X","cat":"cpu_op","pid":1,"tid":"5","ts":60,"dur":5})",
  }));
  EXPECT_DOUBLE_EQ(*trace.graph.ops[op_named(trace.graph, "unnamed")].seconds, 10e-6);
  EXPECT_DOUBLE_EQ(*trace.graph.ops[op_named(trace.graph, "unnamed#2")].seconds, 5e-6);
  ASSERT_EQ(trace.report.warnings.size(), 1U) << to_string(trace.report);
  EXPECT_EQ(trace.report.warnings.front().what, "event of category \"cpu_op\" without a name, called \"unnamed\"");
  EXPECT_EQ(trace.report.warnings.front().count, 2);
}

TEST(ImportKineto, AThreadsTimeIsNeitherLostNorCountedTwice) {
  auto const trace = import_text(gpu_trace());
  // All of the annotation but what the synchronisation waited.
  EXPECT_NEAR(seconds_of_lane(trace, trace.lanes[op_named(trace.graph, "aten::mm")]), (300 - 125) * 1e-6, 1e-9);
}

TEST(ImportKineto, ATraceOfDdpOnGlooHasItsAllReduce) {
  auto const trace = import_text(test::sample("kineto_ddp.json"));
  auto const& graph = trace.graph;
  EXPECT_EQ(trace.report.collectives, 1);
  auto const& collective = graph.ops[op_named(graph, "gloo:all_reduce")];
  EXPECT_EQ(collective.collective.kind, CollectiveKind::all_reduce);
  EXPECT_EQ(collective.collective.bytes, 4 * (64 * 256 + 256 + 256 * 64 + 64));
  EXPECT_EQ(graph.groups.front().sets, (std::vector<std::vector<int>>{{0, 1}}));
  // Its call's "TensorList" has no known size, and is not what the bytes come from.
  EXPECT_EQ(to_string(trace.report).find("TensorList"), std::string::npos) << to_string(trace.report);
  EXPECT_TRUE(waits_for(graph, "gloo:all_reduce", "c10d::allreduce_"));
  EXPECT_EQ(graph.ops[op_named(graph, "c10d::allreduce_")].kind, OpKind::compute);
  EXPECT_EQ(graph.ops[op_named(graph, "aten::add_")].kind, OpKind::update);
  // Autograd's flows: forward's first layer before its backward, besides the thread's order.
  EXPECT_TRUE(waits_for(graph, "autograd::engine::evaluate_function: AddmmBackward0#2", "aten::linear"));
}

TEST(ImportKineto, WorkThatIsTitledFromItsCallOnRunsBesideTheThread) {
  auto const trace = import_text(trace_of({
      event("c10d::allreduce_", "cpu_op", "5", 10, 10),
      event("weft:all_reduce", "user_annotation", "5", 12, 100, R"({"Input Dims":[[10]],"Input type":["float"]})"),
      event("aten::mm", "cpu_op", "5", 30, 20),
      event("c10d::allreduce_", "cpu_op", "5", 60, 10),
      event("weft:all_reduce", "user_annotation", "5", 62, 90, R"({"Input Dims":[[10]],"Input type":["float"]})"),
      event("aten::add", "cpu_op", "5", 80, 100),
      event("c10d::broadcast_", "cpu_op", "5", 190, 20),  // which waits
      event("weft:broadcast", "user_annotation", "5", 192, 16, R"({"Input Dims":[[10]],"Input type":["float"]})"),
  }));
  auto const& graph = trace.graph;
  EXPECT_EQ(trace.report.collectives, 3) << to_string(trace.report);
  EXPECT_DOUBLE_EQ(*graph.ops[op_named(graph, "aten::mm")].seconds, 20e-6);
  EXPECT_DOUBLE_EQ(*graph.ops[op_named(graph, "aten::add")].seconds, 100e-6);
  EXPECT_FALSE(waits_for(graph, "aten::mm", "weft:all_reduce"));
  EXPECT_TRUE(waits_for(graph, "weft:all_reduce", "c10d::allreduce_"));
  EXPECT_TRUE(waits_for(graph, "weft:all_reduce#2", "weft:all_reduce"));
  EXPECT_NEAR(*graph.ops[op_named(graph, "weft:all_reduce")].seconds, 100e-6, 1e-12);
  EXPECT_NEAR(*graph.ops[op_named(graph, "weft:all_reduce#2")].seconds, 40e-6, 1e-12);  // 112 to 152
  EXPECT_EQ(trace.lanes[op_named(graph, "weft:broadcast")], trace.lanes[op_named(graph, "aten::add")]);
}

TEST(ImportKineto, ATraceOfFsdp2OnGlooHasItsGather) {
  auto const trace = import_text(test::sample("kineto_fsdp2.json"));
  std::int64_t gathered = 0;
  for (auto const& op : trace.graph.ops) {
    if (op.kind == OpKind::collective && op.collective.kind == CollectiveKind::all_gather)
      gathered += op.collective.bytes;
  }
  // The root stays gathered until backward.
  EXPECT_EQ(gathered, 4 * (64 * 256 + 256)) << to_string(trace.report);
}

TEST(ImportKineto, WhatIsUnknownIsCounted) {
  auto const trace = import_text(trace_of({
      event("mystery", "magic", "1", 0, 5),
      event("gloo:coalesced", "user_annotation", "2", 0, 5, R"({"Input Dims":[[10]],"Input type":["Quantum"]})"),
      R"({"ph":"f","id":9,"cat":"x","name":"x","pid":1,"tid":1,"ts":1})",
  }));
  auto const report = to_string(trace.report);
  test::expect_names(report, {"unknown category \"magic\"", "unknown kind", "\"Quantum\"", "flow without a beginning"});
  EXPECT_EQ(trace.graph.ops[op_named(trace.graph, "gloo:coalesced")].collective.bytes, 80);
  EXPECT_DOUBLE_EQ(*trace.graph.ops[op_named(trace.graph, "mystery")].seconds, 5e-6);
}

TEST(ImportKineto, WhatIsWrongIsNamed) {
  std::vector<std::pair<std::string, std::vector<std::string>>> const cases = {
      {"", {"trace.json", "not JSON"}},
      {"{\n\"traceEvents\": [\n{]", {"trace.json", "line 3"}},
      {"[]", {"traceEvents"}},
      {R"({"traceEvents": [{"ph":"X","name":"b","cat":"cpu_op","ts":0,"dur":1,"pid":)" + std::string(300'000, '[') +
           std::string(300'000, ']') + "}]}",
       {"trace.json", "nested deeper than 100"}},
      {R"({"traceEvents": {}})", {"traceEvents"}},
      {R"({"traceEvents": [1]})", {"event 0", "no JSON object"}},
      {R"({"traceEvents": [{"name": "a"}]})", {"event 0 (a)", "\"ph\""}},
      {trace_of({event("ok", "cpu_op", "1", 0, 1), R"({"ph":"X","name":"b","cat":"cpu_op","dur":1})"}),
       {"event 1 (b)", "\"ts\" is missing"}},
      {R"({"traceEvents": [{"ph":"X","name":"b","cat":"cpu_op","ts":"now","dur":1}]})", {"event 0 (b)", "no number"}},
      {trace_of({event("b", "cpu_op", "1", 0, -5)}), {"event 0 (b)", "\"dur\" is -5"}},
      {trace_of({event("gloo:x", "cpu_op", "1", 0, 5, R"({"Input Dims":[[-4]],"Input type":["float"]})")}),
       {"gloo:x", "dimension of -4"}},
      {trace_of({event("gloo:x", "cpu_op", "1", 0, 5, R"({"Input Dims":[[1e18,1e18]],"Input type":["float"]})")}),
       {"gloo:x", "bytes"}},
  };
  for (auto const& [json, named] : cases) {
    SCOPED_TRACE(json);
    test::expect_names(test::message_of([&, text = json] { static_cast<void>(import_text(text)); }), named);
  }
}

TEST(ImportKineto, NothingButErrorsComesOfDamage) {
  auto const read = [](std::string const& text) { static_cast<void>(import_text(text)); };
  test::survive_mutations(gpu_trace(), 3000, read);
  test::survive_mutations(test::sample("kineto_ddp.json"), 200, read);
}

TEST(PlanDiff, SaysWhatIsLate) {
  std::vector<PlannedTime> const plan = {{"a", 1.0, 0.5}, {"mm", 1.5, 1}, {"mm", 2.5, 1}, {"gone", 4, 1}};
  std::vector<PlannedTime> const trace = {{"mm#2", 14, 1}, {"a", 10, 1}, {"mm", 11, 1.25}, {"extra", 9, 1}};
  auto const diff = compare_plan(plan, trace);
  ASSERT_EQ(diff.rows.size(), 5u);
  EXPECT_EQ(diff.rows[0].late, 0);
  EXPECT_EQ(diff.rows[0].longer, 0.5);
  EXPECT_EQ(diff.rows[1].late, 0.5);
  EXPECT_EQ(diff.rows[1].longer, 0.25);
  EXPECT_EQ(diff.rows[2].late, 2.5);
  EXPECT_EQ(diff.not_measured, 1u);
  EXPECT_EQ(diff.not_planned, 1u);
  EXPECT_EQ(diff.planned_seconds, 4);
  EXPECT_EQ(diff.measured_seconds, 6);
  auto const table = to_string(diff, 1);
  test::expect_names(table, {"mm", "+2500.000", "1 operators were not measured, 1 not planned"});
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
}

TEST(PlanDiff, ATraceBesideItselfIsOnTime) {
  auto const times = times_of(import_text(test::sample("kineto_ddp.json")));
  auto const diff = compare_plan(times, times);
  for (auto const& row : diff.rows) EXPECT_EQ(row.late, 0) << row.name;
  EXPECT_EQ(diff.not_measured + diff.not_planned, 0u);
}

}  // namespace
}  // namespace weft
