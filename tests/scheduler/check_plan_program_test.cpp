#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "harness/sanitizers.hpp"
#include "scheduler/weft_schedule_program.hpp"
#include "weft/schedule.hpp"

namespace weft::test {
namespace {

TEST_F(WeftSchedule, EveryPolicysPlanOfRandomGraphsIsConfirmed) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    write_random_graph("random.json", seed);
    for (int policy = 0; policy < kSchedulePolicies; ++policy) {
      auto const name = std::string(to_string(static_cast<SchedulePolicy>(policy)));
      std::string const contention = seed % 2 == 0 ? "0.3" : "0";
      std::string const memory = seed % 3 == 0 ? "1x" : "1.5x";
      expect_checked(fmt::format("{} --cluster {} --memory {} --policy {} --contention {}", file("random.json"),
                                 file("unit.json"), memory, name, contention));
      if (HasFailure()) return;
    }
  }
}

TEST_F(WeftSchedule, TheChecksVerdictThatCannotBeWrittenIsNoVerdict) {
  write_random_graph("random.json", 1);
  expect_checked(file("random.json") + " --cluster " + file("unit.json") + " --memory 2x --policy asap");
  auto const into = [&](std::string const& place) {
    return run_shell("(timeout 100 python3 " WEFT_SOURCE_DIR "/tools/check_plan.py " + file("g.json") + " " +
                     file("p.json") + " " + place + ")");
  };
  for (std::string const place : {"> /dev/full", ">&-"}) {
    auto const result = into(place);
    EXPECT_EQ(result.code, 2) << place;
    EXPECT_EQ(result.output.rfind("check_plan.py: standard output: cannot be written: ", 0), 0U) << result.output;
    EXPECT_EQ(result.output.find('\n'), result.output.size() - 1) << result.output;
  }
}

/// Operators of no length, and of some that a clock of doubles does not show once it has gone on for long: many
/// launches begin and end at one instant.

TEST_F(WeftSchedule, BytesLiveAreConfirmedWhereLaunchesBeginAndEndAtOneInstant) {
  constexpr std::array<double, 7> kSeconds = {0, 0, 1e-12, 3e-10, 0.1, 0.3, 2e6};
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    OpGraph graph = random_graph(random, {.ops = 4 + random() % 40, .collectives = 0.4});
    for (auto& op : graph.ops) {
      if (random() % 4 > 0) op.seconds = kSeconds.at(random() % kSeconds.size());
      if (random() % 3 == 0) op.kind = op.kind == OpKind::compute ? OpKind::copy : op.kind;
    }
    std::ofstream out(file("random.json"));
    write_graph(graph, out);
    out.close();
    SCOPED_TRACE(seed);
    for (std::string const policy : {"weft", "asap"}) {
      expect_checked(file("random.json") + " --cluster " + file("unit.json") + " --time-limit 1 --policy " + policy +
                     (seed % 2 == 0 ? " --contention 0.3" : "") + (seed % 3 == 0 ? " --memory 1x" : " --memory 2x"));
    }
    if (HasFailure()) return;
  }
}

/// A strategy and its options. A test each: all of them take longer than one test may on a busy machine.
class PlansOfTransformers : public WeftSchedule, public testing::WithParamInterface<std::string> {};

TEST_P(PlansOfTransformers, AreConfirmed) {
  for (std::string const more : {"", " --contention 0.2 --micro-batches 2 --clipping --unmerged",
                                 " --tensor-ranks 2 --pipeline-stages 2 --stage 1 --micro-batches 3"}) {
    expect_checked(
        "--model gpt2-small --data-ranks 32 --cluster a100-100g --memory 1.3x --policy weft --time-limit 2 "
        "--strategy " +
        GetParam() + more);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, PlansOfTransformers,
                         testing::ValuesIn(unless_sanitized<std::vector<std::string>>(
                             {"ddp", "zero1", "zero2", "zero3", "hsdp --shard-ranks 8"},
                             {"zero2", "hsdp --shard-ranks 8"})),
                         [](auto const& strategy) { return strategy.param.substr(0, strategy.param.find(' ')); });

TEST_F(WeftSchedule, BrokenPlansAreRefused) {
  auto const made =
      run("--model gpt2-small --layers 3 --strategy zero3 --data-ranks 32 --cluster a100-100g --memory 1.3x " +
          ("--contention 0.1 --policy weft --graph-out " + file("g.json")) + " --plan " + file("p.json"));
  ASSERT_EQ(made.code, 0) << made.output;
  Json const plan = read("p.json");
  std::size_t merged = 0;
  while (plan["launches"][merged]["ops"].size() < 2) ASSERT_LT(++merged, plan["launches"].size());
  // The place of the first launch that has the resource and a length.
  auto const first_on = [&](char const* resource) {
    std::size_t i = 0;
    while (plan["launches"][i]["resource"] != resource) ++i;
    return i;
  };
  std::size_t const computes = first_on("compute");
  struct Case {
    char const* what;
    char const* words;
    std::function<void(Json&)> break_it;
  };
  auto const last = plan["launches"].size() - 1;
  for (auto const& [what, words, break_it] : {
           Case{"swapped", "needs launch",
                [&](Json& p) { std::swap(p["launches"][computes]["ops"], p["launches"][last]["ops"]); }},
           Case{"earlier", "while launch",
                [&](Json& p) {
                  auto& launch = p["launches"][last];
                  double const length = launch["end_s"].get<double>() - launch["start_s"].get<double>();
                  launch["start_s"] = p["launches"][last - 1]["start_s"];
                  launch["end_s"] = launch["start_s"].get<double>() + length;
                }},
           Case{"missing", "does not run", [&](Json& p) { p["launches"].erase(computes); }},
           Case{"twice", "runs twice", [&](Json& p) { p["launches"].push_back(p["launches"][last]); }},
           Case{"unknown", "the graph has no operator",
                [&](Json& p) { p["launches"][computes]["ops"][0] = "nothing"; }},
           Case{"over the capacity", "more than the capacity",
                [&](Json& p) { p["capacity"] = p["peak_bytes"].get<std::int64_t>() - 1; }},
           Case{"bytes", "are said to be live", [&](Json& p) { p["launches"][computes]["live_bytes"] = 1; }},
           Case{"peak", "peak_bytes is said", [&](Json& p) { p["peak_bytes"] = 1; }},
           Case{"longer", "of work, and takes",
                [&](Json& p) {
                  auto& end = p["launches"][last]["end_s"];
                  end = end.get<double>() * 1.001;
                  p["makespan_s"] = end;
                }},
           Case{"without contention", "of work, and takes", [&](Json& p) { p["contention"] = 0; }},
           Case{"makespan", "makespan_s is said",
                [&](Json& p) { p["makespan_s"] = p["makespan_s"].get<double>() * 0.99; }},
           Case{"bound", "lower_bound.best_s is said", [&](Json& p) { p["lower_bound"]["best_s"] = p["makespan_s"]; }},
           Case{"smaller bound", "the largest of what it is made of", [&](Json& p) { p["lower_bound"]["best_s"] = 0; }},
           Case{"bound within memory", "lower_bound.memory_s is said",
                [&](Json& p) { p["lower_bound"]["memory_s"] = p["lower_bound"]["memory_s"].get<double>() * 1.001; }},
           Case{
               "bound by launches", "lower_bound.launches_s is said",
               [&](Json& p) { p["lower_bound"]["launches_s"] = p["lower_bound"]["launches_s"].get<double>() * 1.001; }},
           Case{"overlapping", "are both live",
                [&](Json& p) {
                  // What is there all the time lies apart.
                  auto& buffers = p["memory"]["buffers"];
                  std::size_t largest = 0;
                  for (std::size_t i = 0; i < buffers.size(); ++i) {
                    if (buffers[i]["bytes"] > buffers[largest]["bytes"]) largest = i;
                  }
                  for (auto& buffer : buffers) {
                    if (buffer["offset"] == 0) buffer["offset"] = buffers[largest]["offset"];
                  }
                  if (buffers[largest]["offset"] == 0) buffers[largest]["offset"] = 256;
                }},
           Case{"not aligned", "no multiple of 256", [&](Json& p) { p["memory"]["buffers"][0]["offset"] = 3; }},
           Case{"not placed", "have no offset", [&](Json& p) { p["memory"]["buffers"].erase(0); }},
           Case{"placed twice", "an offset of its own",
                [&](Json& p) { p["memory"]["buffers"].push_back(p["memory"]["buffers"][0]); }},
           Case{"smaller", "is said to have 1 bytes", [&](Json& p) { p["memory"]["buffers"][0]["bytes"] = 1; }},
           Case{"offsets' bytes", "memory.bytes is said", [&](Json& p) { p["memory"]["bytes"] = 1; }},
           Case{"resource", "and runs on compute", [&](Json& p) { p["launches"][computes]["resource"] = "copy"; }},
           Case{"merged with computing", "not collectives of one kind",
                [&](Json& p) {
                  p["launches"][merged]["ops"].push_back(p["launches"][computes]["ops"][0]);
                  p["launches"].erase(computes);
                }},
       }) {
    SCOPED_TRACE(what);
    Json broken = plan;
    break_it(broken);
    write("broken.json", broken);
    auto const checked = check("g.json", "broken.json");
    EXPECT_EQ(checked.code, 1) << checked.output;
    EXPECT_NE(checked.output.find(words), std::string::npos) << checked.output;
    EXPECT_NE(checked.output.find("refused"), std::string::npos) << checked.output;
  }
}

TEST_F(WeftSchedule, FilesThatAreNoPlansAreRefusedWithThePlace) {
  write_random_graph("random.json", 3);
  expect_checked(file("random.json") + " --cluster " + file("unit.json") + " --memory 1x --policy asap");
  std::string text;
  std::getline(std::ifstream(file("p.json")), text, '\0');
  Json const plan = Json::parse(text);
  struct Case {
    char const* pointer;
    char const* value;  ///< JSON, or what Python takes for it; empty: the key is not there
    char const* words;
  };
  for (auto const& [pointer, value, words] :
       {Case{"/makespan_s", "NaN", "makespan_s: nan"},
        Case{"/makespan_s", "Infinity", "makespan_s: inf"},
        Case{"/makespan_s", "1e999", "makespan_s: inf"},
        Case{"/makespan_s", "true", "makespan_s: True"},
        Case{"/contention", "-1", "contention: -1"},
        Case{"/contention", "NaN", "contention: nan"},
        Case{"/launches/2/start_s", "\"now\"", "launches[2].start_s: 'now'"},
        Case{"/launches/2/end_s", "-Infinity", "launches[2].end_s: -inf"},
        Case{"/launches/1/ops", "\"op0\"", "launches[1].ops: 'op0', where a list"},
        Case{"/launches/1/ops/0", "7", "launches[1].ops[0]: 7"},
        Case{"/launches/0/live_bytes", "1.5", "launches[0].live_bytes: 1.5"},
        Case{"/launches/0/live_bytes", "", "launches[0]: the key live_bytes is missing"},
        Case{"/launches/0/resource", "\"disk\"", "launches[0].resource: 'disk'"},
        Case{"/launches/0/color", "1", "launches[0]: unknown key 'color'"},
        Case{"/launches", "{}", "launches: {}"},
        Case{"/lower_bound/resource_s", "{}", "lower_bound.resource_s: the key compute is missing"},
        Case{"/lower_bound/best_s", "null", "lower_bound.best_s: None"},
        Case{"/capacity", "-1", "capacity: -1"},
        Case{"/capacity", "", "the key capacity is missing"},
        Case{"/cluster/within/bytes_per_s", "0", "cluster.within.bytes_per_s: 0"},
        Case{"/memory/alignment", "0", "memory.alignment: 0"},
        Case{"/memory/buffers/0/offset", "-256", "memory.buffers[0].offset: -256"},
        Case{"/weft_plan", "2", "weft_plan: 2"}}) {
    SCOPED_TRACE(std::string(pointer) + " " + value);
    Json broken = plan;
    auto const at = Json::json_pointer(pointer);
    if (*value == '\0') {
      broken[at.parent_pointer()].erase(at.back());
    } else {
      broken[at] = "PLACE";
    }
    std::string written = broken.dump();
    if (auto const place = written.find("\"PLACE\""); place != std::string::npos) written.replace(place, 7, value);
    std::ofstream(file("broken.json")) << written;
    auto const checked = check("g.json", "broken.json");
    EXPECT_EQ(checked.code, 2) << checked.output;
    EXPECT_NE(checked.output.find("broken.json: " + std::string(words)), std::string::npos) << checked.output;
    EXPECT_EQ(std::count(checked.output.begin(), checked.output.end(), '\n'), 1) << checked.output;
  }
}

TEST_F(WeftSchedule, GraphsAndClustersThatAreNoneAreRefusedByTheChecker) {
  write_random_graph("random.json", 3);
  expect_checked(file("random.json") + " --cluster " + file("unit.json") + " --memory 1x --policy asap");
  for (std::string const lines :
       {R"("tensors":[{"name":"a","bytes":1,"alias_of":"b"},{"name":"b","bytes":1,"alias_of":"a"}])",
        R"("tensors":[{"name":"a","bytes":1},{"name":"a","bytes":1}])", R"("tensors":[{"name":"a","bytes":-1}])",
        R"("ops":[{"name":"o","kind":"compute","reads":["x"]}])", R"("ops":[{"name":"o","kind":"collective"}])",
        R"("ops":[{"name":"o","kind":"compute","after":["p"]},{"name":"p","kind":"compute","after":["o"]}])",
        R"("groups":[{"name":"g","strided":{"ranks":3,"size":2}}])"}) {
    std::ofstream(file("bad.json")) << R"({"weft_graph":1,)" << lines << "}";
    auto const checked = check("bad.json", "p.json");
    EXPECT_EQ(checked.code, 2) << lines << "\n" << checked.output;
    EXPECT_NE(checked.output.find("bad.json: "), std::string::npos) << checked.output;
    EXPECT_EQ(std::count(checked.output.begin(), checked.output.end(), '\n'), 1) << checked.output;
  }
  EXPECT_EQ(check("g.json", "p.json --cluster " + file("unit.json")).code, 0);
  Json other = read("unit.json");
  other["between"]["step_s"] = 0.75;
  write("other.json", other);
  auto const against = check("g.json", "p.json --cluster " + file("other.json"));
  EXPECT_EQ(against.code, 1);
  EXPECT_NE(against.output.find("between.step_s of 0.5, and --cluster says 0.75"), std::string::npos) << against.output;
  auto const named = check("g.json", "p.json --cluster a100");
  EXPECT_EQ(named.code, 2);
  EXPECT_NE(named.output.find("--cluster is neither a100-100g"), std::string::npos) << named.output;
}

TEST_F(WeftSchedule, MemoryThatIsWrittenOverItselfIsRefused) {
  std::ofstream(file("circle.json")) << R"({"weft_graph":1,"name":"circle","tensors":[
    {"name":"r","bytes":8,"in_place_of":"m"},{"name":"t","bytes":8,"alias_of":"r"},{"name":"m","bytes":8,"in_place_of":"t"}],
    "ops":[{"name":"A","kind":"compute","writes":["t"]},{"name":"B","kind":"compute","reads":["t"],"writes":["m"]},
           {"name":"C","kind":"compute","reads":["m"],"writes":["r"]}]})";
  auto const planned = run(file("circle.json") + " --cluster " + file("unit.json") + " --memory 1x --policy asap");
  EXPECT_EQ(planned.code, 2) << planned.output;
  EXPECT_NE(planned.output.find("it uses tensor 1 (t) before operator 2 (C)"), std::string::npos) << planned.output;
  write_random_graph("random.json", 3);
  expect_checked(file("random.json") + " --cluster " + file("unit.json") + " --memory 1x --policy asap");
  auto const checked = check("circle.json", "p.json");
  EXPECT_EQ(checked.code, 2) << checked.output;
  EXPECT_NE(checked.output.find("written over itself"), std::string::npos) << checked.output;
}

TEST_F(WeftSchedule, GraphsThatThePlannerRefusesAreNoneToTheChecker) {
  write_random_graph("random.json", 3);
  expect_checked(file("random.json") + " --cluster " + file("unit.json") + " --memory 1x --policy asap");
  std::string const tensors = R"({"weft_graph":1,"name":"odd","tensors":[{"name":"whole","bytes":8},
    {"name":"part","bytes":4,"alias_of":"whole"}],"ops":[{"name":"A","kind":"compute","writes":[)";
  std::ofstream(file("early.json")) << tensors << R"("part"]},{"name":"B","kind":"compute","writes":["whole"]}]})";
  std::ofstream(file("twice.json")) << tensors << R"("whole"]},{"name":"B","kind":"compute","writes":["whole"]}]})";
  for (auto const& [name, words] : {std::pair{"early.json", "the first uses memory before the second has written it"},
                                    std::pair{"twice.json", "tensor whole is written by operators A and B"}}) {
    EXPECT_EQ(run(file(name) + " --cluster " + file("unit.json") + " --memory 1x --policy asap").code, 2) << name;
    auto const checked = check(name, "p.json");
    EXPECT_EQ(checked.code, 2) << checked.output;
    EXPECT_NE(checked.output.find(words), std::string::npos) << checked.output;
  }
}

TEST_F(WeftSchedule, MergingAcrossAPathIsRefused) {
  OpGraph graph{.name = "path"};
  GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
  TensorId const first = graph.add(OpTensor{.name = "first", .bytes = 4});
  TensorId const second = graph.add(OpTensor{.name = "second", .bytes = 4});
  OpCollective const sum{CollectiveKind::all_reduce, 4, world};
  graph.add(OpNode{.name = "a", .kind = OpKind::collective, .collective = sum, .writes = {first}});
  graph.add(OpNode{.name = "b", .kind = OpKind::collective, .collective = sum, .reads = {first}, .writes = {second}});
  std::ofstream out(file("path.json"));
  write_graph(graph, out);
  out.close();
  expect_checked(file("path.json") + " --cluster " + file("unit.json") + " --memory 1x --policy weft");
  Json plan = read("p.json");
  plan["launches"][0]["ops"] = {"a", "b"};
  plan["launches"].erase(1);
  write("cycle.json", plan);
  auto const checked = check("path.json", "cycle.json");
  EXPECT_EQ(checked.code, 1);
  EXPECT_NE(checked.output.find("cycle"), std::string::npos) << checked.output;
}

TEST_F(WeftSchedule, NamedClustersAreTheSameToTheChecker) {
  for (auto const& name : cluster_names()) {
    expect_checked("--model gpt2-small --layers 1 --data-ranks 16 --cluster " + name + " --policy asap");
    auto const confirmed = check("g.json", "p.json --cluster " + name);
    EXPECT_EQ(confirmed.code, 0) << confirmed.output;
  }
  EXPECT_EQ(check("g.json", "p.json --cluster a100-100g").code, 1);
}

}  // namespace
}  // namespace weft::test
