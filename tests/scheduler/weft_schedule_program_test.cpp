#include <algorithm>
#include <fstream>
#include <string>

#include "scheduler/weft_schedule_program.hpp"
#include "weft/schedule.hpp"

namespace weft::test {
namespace {

TEST_F(WeftSchedule, ReadsTracesOfTorch) {
  expect_checked(WEFT_SOURCE_DIR "/tests/importers/data/kineto_ddp.json --cluster a100-100g --policy weft,asap");
}

TEST_F(WeftSchedule, ReadsTracesOfTorchFromJobsOfManyRanks) {
  Json const trace = {
      {"schemaVersion", 1},
      {"distributedInfo", {{"pg_config", {{{"pg_name", "0"}, {"ranks", std::vector<int>(40'000, 7)}}}}}},
      {"traceEvents",
       {{{"ph", "X"}, {"name", "a"}, {"cat", "cpu_op"}, {"pid", 1}, {"tid", 1}, {"ts", 1}, {"dur", 2}}}}};
  write("trace.json", trace);
  auto const result = run(file("trace.json") + " --cluster a100-100g --policy asap");
  EXPECT_EQ(result.code, 0) << result.output;
}

TEST_F(WeftSchedule, ReadsExecutionTracesOfTorch) {
  expect_checked(WEFT_SOURCE_DIR
                 "/tests/importers/data/chakra_ddp.json --cluster a100-100g --memory 1.3x --policy weft");
}

TEST_F(WeftSchedule, ReplaysPlansWithOtherTimes) {
  auto const result = run(
      "--model gpt2-small --strategy zero3 --data-ranks 32 --cluster a100-100g --policy weft,asap --replay --json " +
      file("out.json"));
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("replayed"), std::string::npos) << result.output;
  Json const figures = read("out.json");
  for (auto const& policy : figures["policies"]) {
    double const planned = policy["makespan_ms"].get<double>();
    for (char const* const key : {"noise", "slow_links", "slow_computing"}) {
      double const replayed = policy["replayed_ms"][key].get<double>();
      EXPECT_GT(replayed, 0.79 * planned) << key;
      EXPECT_LT(replayed, 1.21 * planned) << key;
      EXPECT_NE(replayed, planned) << key;
    }
  }
}

TEST_F(WeftSchedule, DrawsWhatWasPlanned) {
  if (run_shell("python3 -c 'import matplotlib' || /usr/bin/python3 -c 'import matplotlib'").code != 0) {
    GTEST_SKIP() << "there is no matplotlib";
  }
  auto const model =
      std::string("--model gpt2-small --strategy zero3 --data-ranks 8 --cluster a100-100g --policy weft,asap ");
  auto const drawn = run(model + "--plot '" + file("a picture.png") + "'");
  ASSERT_EQ(drawn.code, 0) << drawn.output;
  std::ifstream picture(file("a picture.png"), std::ios::binary);
  std::string begin(4, ' ');
  picture.read(begin.data(), 4);
  EXPECT_EQ(begin, "\x89PNG");
  auto const nowhere = run(model + "--plot /nowhere/picture.png");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_NE(nowhere.output.find("/nowhere/picture.png"), std::string::npos) << nowhere.output;
}

TEST_F(WeftSchedule, DrawsPoliciesWhereTheyAreAndLabelsWithinTheAxes) {
  auto const python =
      std::string(run_shell("python3 -c 'import matplotlib'").code == 0 ? "python3" : "/usr/bin/python3");
  if (run_shell(python + " -c 'import matplotlib'").code != 0) GTEST_SKIP() << "there is no matplotlib";
  // Weft's step is above the bound by less than what a label shows; names enough for several lines.
  std::ofstream(file("look.py")) << R"(
import sys
sys.path.insert(0, sys.argv[1])
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import plot_schedule

def policy(name, peak, step):
    return {"name": name, "peak_bytes": peak, "makespan_ms": step, "lower_bound_ms": 37.149}

names = ["weft", "asap", "alap", "prefetch1", "prefetch2", "xla", "inductor"]
report = {"policies": [policy(name, 5_000_000, 37.14901) for name in names] + [policy("blocking", 6_000_000, 61.2)]}
figure = plt.figure(figsize=(14, 7), layout="constrained")
axes = figure.add_subplot(figure.add_gridspec(1, 2, width_ratios=[2.4, 1])[0, 1])
plot_schedule.draw_policies(axes, report)
figure.canvas.draw()
lines = axes.get_lines()
bound = next(line.get_ydata()[0] for line in lines if line.get_linestyle() == ":")
points = [line.get_ydata()[0] for line in lines if line.get_linestyle() != ":"]
assert len(points) == 8 and min(points) >= bound, (points, bound)
around = axes.get_window_extent()
for text in axes.texts:
    at = matplotlib.text.Text.get_window_extent(text)
    assert at.x0 >= around.x0 and at.x1 <= around.x1 and at.y0 >= around.y0 and at.y1 <= around.y1, text
assert axes.get_xlabel() == "peak MB", axes.get_xlabel()
)";
  auto const result = run_shell(python + " " + file("look.py") + " " WEFT_SOURCE_DIR "/tools");
  EXPECT_EQ(result.code, 0) << result.output;
}

TEST_F(WeftSchedule, WritesTimelinesThatPerfettoReads) {
  auto const planned =
      run("--model gpt2-small --strategy zero3 --data-ranks 8 --cluster a100-100g --policy weft --trace " +
          file("trace.json") + " --plan " + file("plan.json"));
  ASSERT_EQ(planned.code, 0) << planned.output;
  std::size_t launches = 0;
  double last = 0;
  Json const timeline = read("trace.json");
  for (auto const& event : timeline["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++launches;
    last = std::max(last, event["ts"].get<double>() + event["dur"].get<double>());
  }
  Json const plan = read("plan.json");
  EXPECT_GT(launches, 0u);
  EXPECT_LE(launches, plan["launches"].size());
  EXPECT_NEAR(last, plan["makespan_s"].get<double>() * 1e6, 1);
}

TEST_F(WeftSchedule, WritesFiguresOfAllPoliciesAndOfWhatIf) {
  auto const result = run("--model gpt2-small --strategy zero3 --data-ranks 32 --cluster a100-100g --memory 1.3x " +
                          ("--what-if link=2x,ranks=64,memory=20G --json " + file("out.json")));
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("bounded by"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("the longest gap"), std::string::npos) << result.output;
  Json const json = read("out.json");
  ASSERT_EQ(json["policies"].size(), static_cast<std::size_t>(kSchedulePolicies));
  for (auto const& policy : json["policies"]) {
    for (char const* key : {"makespan_ms", "lower_bound_ms", "exposed_fraction", "peak_bytes", "planning_s"}) {
      EXPECT_TRUE(policy.at(key).is_number()) << key;
    }
    EXPECT_GE(policy["makespan_ms"].get<double>(), policy["lower_bound_ms"].get<double>() * (1 - 1e-9));
    EXPECT_LE(policy["peak_bytes"].get<double>(), json["capacity"].get<double>());
  }
  EXPECT_EQ(json["what_if"]["capacity"], 20'000'000'000);
  EXPECT_NE(json["what_if"]["policies"][0]["makespan_ms"], json["policies"][0]["makespan_ms"]);
  // What is idle is explained, all of it: computing and the gaps make the step.
  double sum = json["policies"][0]["busy_ms"]["compute"].get<double>();
  for (auto const& cause : json["gaps"]["causes"]) sum += cause["ms"].get<double>();
  EXPECT_NEAR(sum, json["policies"][0]["makespan_ms"].get<double>(), 1e-6);
}

/// The checker's figures of named clusters are the planner's.

TEST_F(WeftSchedule, GathersAsFarAheadAsItIsTold) {
  expect_checked(
      "--model llama2-7b --layers 8 --strategy zero3 --data-ranks 16 --cluster a100-800g --memory 3x --json " +
      file("out.json") + " --policy prefetch1,prefetch2,prefetch3,prefetch6");
  Json const policies = read("out.json")["policies"];
  ASSERT_EQ(policies.size(), 4U);
  EXPECT_EQ(policies[2]["name"], "prefetch3");
  // Further ahead takes more memory, and lets nothing wait longer.
  EXPECT_LT(policies[0]["peak_bytes"], policies[2]["peak_bytes"]);
  EXPECT_LT(policies[2]["peak_bytes"], policies[3]["peak_bytes"]);
  EXPECT_GE(policies[0]["makespan_ms"].get<double>(), policies[3]["makespan_ms"].get<double>() * (1 - 1e-9));
}

TEST_F(WeftSchedule, AdvisesSettingsAndWhatTheyGain) {
  // Launches that cost more than what they send: buckets make the step shorter.
  auto const result =
      run("--model gpt2-small --data-ranks 64 --cluster a100-100g --policy weft --json " + file("out.json"));
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("gradients in buckets of"), std::string::npos) << result.output;
  Json const figures = read("out.json");
  Json const& advice = figures["advice"];
  EXPECT_GT(advice["reduction_bytes"].get<double>(), 0);
  EXPECT_LT(advice["step_ms"].get<double>(), advice["single_step_ms"].get<double>());
  EXPECT_GE(advice["step_ms"].get<double>(), figures["policies"][0]["lower_bound_ms"].get<double>() * (1 - 1e-9));
  EXPECT_TRUE(advice["kept_step_ms"].is_null());
  // What is advised is what --gathered-once does.
  std::string const sharded =
      "--model llama2-7b --layers 8 --strategy zero3 --data-ranks 64 --cluster a100-200g --policy weft ";
  ASSERT_EQ(run(sharded + "--json " + file("out.json")).code, 0);
  Json const kept = read("out.json")["advice"];
  EXPECT_FALSE(kept["kept_layers"].empty());
  EXPECT_LT(kept["kept_step_ms"], kept["step_ms"]);
  auto const once = std::to_string(kept["kept_layers"].size());
  ASSERT_EQ(run(sharded + "--gathered-once " + once + " --json " + file("once.json")).code, 0);
  EXPECT_LE(read("once.json")["policies"][0]["makespan_ms"].get<double>(),
            kept["kept_step_ms"].get<double>() * (1 + 1e-9));
}

TEST_F(WeftSchedule, SetsThePlanBesideWhatWasMeasured) {
  std::string const trace = WEFT_SOURCE_DIR "/tests/importers/data/kineto_ddp.json";
  auto const result =
      run(trace + " --cluster a100-100g --policy weft --measured " + trace + " --json " + file("out.json"));
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("beside what was measured"), std::string::npos) << result.output;
  Json const figures = read("out.json");
  Json const& measured = figures["measured"];
  EXPECT_EQ(measured["not_measured"], 0);
  EXPECT_EQ(measured["not_planned"], 0);
  EXPECT_EQ(measured["rows"].size(), figures["operators"].get<std::size_t>());
  EXPECT_NEAR(measured["planned_ms"].get<double>(), figures["policies"][0]["makespan_ms"].get<double>(), 1e-6);
}

TEST_F(WeftSchedule, MemoryThatIsTooLittleIsSaidWithWhatIsShort) {
  auto const result = run("--model gpt2-small --cluster a100-100g --memory 1G --policy asap");
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_NE(result.output.find("are short"), std::string::npos) << result.output;
}

TEST_F(WeftSchedule, WhatIfThatDoesNotFitIsToldBesideThePlan) {
  auto const result = run("--model gpt2-small --cluster a100-100g --policy asap --what-if memory=1G --plan " +
                          file("p.json") + " --graph-out " + file("g.json") + " --json " + file("out.json"));
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_NE(result.output.find("asap "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("what-if memory=1G does not fit"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("are short"), std::string::npos) << result.output;
  EXPECT_EQ(check("g.json", "p.json").code, 0);
  Json const figures = read("out.json");
  EXPECT_EQ(figures["policies"].size(), 1u);
  EXPECT_NE(figures["what_if"]["does_not_fit"].get<std::string>().find("are short"), std::string::npos);
}

TEST_F(WeftSchedule, NamesWhatBoundsTheStep) {
  // What is sent and then computed with: one alone is a path, eight keep the link busy.
  for (int const chains : {1, 8}) {
    OpGraph graph{.name = "chains"};
    GroupId const world = graph.add(OpGroup{.name = "world", .sets = {{0, 1}}});
    for (int i = 0; i < chains; ++i) {
      auto const number = std::to_string(i);
      TensorId const sent = graph.add(OpTensor{.name = "sent" + number, .bytes = 4});
      TensorId const made = graph.add(OpTensor{.name = "made" + number, .bytes = 4});
      graph.add(OpNode{.name = "send" + number,
                       .kind = OpKind::collective,
                       .collective = {CollectiveKind::all_gather, 4, world},
                       .writes = {sent}});
      graph.add(OpNode{.name = "compute" + number, .flops = 1, .reads = {sent}, .writes = {made}});
    }
    std::ofstream out(file("chains.json"));
    write_graph(graph, out);
    out.close();
    auto const result = run(file("chains.json") + " --cluster " + file("unit.json") + " --memory 1x --policy asap");
    char const* const words = chains == 1 ? "bounded by its longest path" : "bounded by the link";
    EXPECT_NE(result.output.find(words), std::string::npos) << result.output;
  }
}

TEST_F(WeftSchedule, TellsATerminalHowFarTheSearchIs) {
  std::string const plan =
      " --model gpt2-small --layers 2 --cluster a100-100g --strategy zero3 --data-ranks 32 --policy weft ";
  auto const shown = run_shell("timeout 100 python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))' " +
                               (WEFT_SCHEDULE_PROGRAM + plan) + "--what-if link=2x < /dev/null");
  EXPECT_NE(shown.output.find("weft: 0 s, "), std::string::npos) << shown.output;
  EXPECT_NE(shown.output.find("link=2x, weft: 0 s, "), std::string::npos) << shown.output;
  EXPECT_EQ(run(plan).output.find("weft: 0 s, "), std::string::npos) << "where nobody looks";
}

TEST_F(WeftSchedule, InterruptedItTellsTheBestUntilThen) {
  // It would search for four seconds or more. On a busy machine it may not have begun after one. In the background,
  // timeout sends the signal twice: to the program, and to its group.
  ShellResult result;
  for (int after = 1; after <= 3 && result.output.find("once more ends at once") == std::string::npos; ++after) {
    result = run_shell("timeout --foreground --preserve-status -s INT " + std::to_string(after) +
                       " " WEFT_SCHEDULE_PROGRAM
                       " --model llama2-7b --strategy zero3 --data-ranks 128 --reduction-bytes 4 "
                       "--cluster a100-400g --memory 19820796868 --policy asap,weft --unmerged --json " +
                       file("best.json") + " 2>&1");
  }
  EXPECT_EQ(result.code, 130) << result.output;
  EXPECT_NE(result.output.find("once more ends at once"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("interrupted; the best plans until then"), std::string::npos) << result.output;
  auto const policies = read("best.json").at("policies");
  ASSERT_EQ(policies.size(), 2U);
  EXPECT_LE(policies[1].at("makespan_ms"), policies[0].at("makespan_ms"));
}

TEST_F(WeftSchedule, RecomputesToFitTheMemory) {
  std::string const model = "--model gpt2-small --layers 4 --strategy zero3 --data-ranks 16 --cluster a100-400g ";
  EXPECT_EQ(run(model + "--memory 340M --policy asap").code, 1);
  expect_checked(model + "--memory 340M --policy weft --recompute auto --json " + file("out.json"));
  Json const figures = read("out.json");
  EXPECT_GT(figures["recomputed"]["operators"].size(), 0u);
  EXPECT_GT(figures["recomputed"]["ms"].get<double>(), 0);
  EXPECT_LE(figures["policies"][0]["peak_bytes"].get<double>(), 340e6);
  auto const too_little = run(model + "--memory 100M --policy asap --recompute auto");
  EXPECT_EQ(too_little.code, 1);
  EXPECT_NE(too_little.output.find("the least found is"), std::string::npos) << too_little.output;
}

TEST_F(WeftSchedule, WhatIsWrittenToStandardOutputStandsThereAlone) {
  write_random_graph("random.json", 1);
  for (std::string const option : {"--plan", "--trace", "--json", "--graph-out"}) {
    auto const result = run_shell("(timeout 100 " WEFT_SCHEDULE_PROGRAM " " + file("random.json") + " --cluster " +
                                  file("unit.json") + " --memory 2x --policy asap " + option + " - 2> /dev/null)");
    EXPECT_EQ(result.code, 0) << option;
    EXPECT_TRUE(Json::accept(result.output)) << option << "\n" << result.output;
  }
}

TEST_F(WeftSchedule, BadInputIsOneLineAndExitCodeTwo) {
  std::ofstream(file("bad.json")) << "{\"weft_graph\": 1, \"ops\": [{}]}";
  std::string const model = "--model gpt2-small --cluster a100-100g";
  std::ofstream(file("empty.json")) << "{}";
  std::ofstream(file("nothing.json")) << R"({"weft_graph": 1})";
  std::ofstream(file("trace.json")) << R"({"traceEvents": []})";
  write_random_graph("random.json", 1);
  struct Case {
    std::string arguments;
    char const* words;
  };
  for (auto const& [arguments, words] :
       {Case{file("absent.json") + " --cluster a100-100g", "cannot be opened"},
        Case{file("bad.json") + " --cluster a100-100g", "bad.json"},
        Case{"--model gpt2-small --cluster a100", "no cluster is named"},
        Case{"--model gpt5 --cluster a100-100g", "no Transformer is named"},
        Case{model + " --memory soon", "no amount of memory"},
        Case{model + " --data-ranks 0", "data_ranks"},
        Case{model + " --heads 5", "heads"},
        Case{model + " --what-if speed=2x", "there is no \"speed\""},
        Case{model + " --what-if link=fast", "neither a number nor a factor"},
        Case{model + " --what-if link=2x,link=3x", "there twice"},
        Case{file("random.json") + " --cluster a100-100g --memory 1x --what-if ranks=2x", "of a --model alone"},
        Case{file("nothing.json") + " --cluster a100-100g", "nothing.json: no operator"},
        Case{file("trace.json") + " --cluster a100-100g", "trace.json"},
        Case{file("random.json") + " --cluster a100-100g --graph-out " + file("random.json"),
             "--graph-out would overwrite what the graph names"},
        Case{"--model gpt2-small --cluster " + file("empty.json") + " --json " + file("./empty.json"),
             "--json would overwrite what --cluster names"},
        Case{model + " --plan " + file("new") + " --trace " + file("./new"), "--trace would overwrite what --plan"},
        Case{model + " --json - --trace -", "--trace and --json cannot both be standard output"},
        Case{model + " --policy asap --plan /nowhere/plan.json", "/nowhere/plan.json: cannot be written"},
        Case{model + " --time-limit 1000 --plan " + file(""), "is a directory"},
        Case{file("") + " --cluster a100-100g", "is a directory"},
        Case{file("random.json") + " --cluster " + file(""), "is a directory"},
        Case{model + " --memory 1.3", "1.3x is times the least"},
        Case{model + " --what-if link=2x,", "nothing after the comma"},
        Case{"--model gpt2-small --cluster " + file("empty.json"),
             "does not say flops_per_s, memory_bytes_per_s, within"},
        Case{model + " --strategy hsdp --data-ranks 16", "among how many of the 16 data_ranks"},
        Case{model + " --measured " + file("absent.json"), "absent.json: cannot be opened"},
        Case{model + " --measured " + file("bad.json"), "bad.json"}}) {
    auto const result = run(arguments);
    EXPECT_EQ(result.code, 2) << arguments << "\n" << result.output;
    EXPECT_NE(result.output.find("weft-schedule: "), std::string::npos) << result.output;
    EXPECT_NE(result.output.find(words), std::string::npos) << result.output;
  }
  auto const no_cluster = run("--model gpt2-small");
  EXPECT_NE(no_cluster.output.find("h200-400g, or a JSON file"), std::string::npos) << no_cluster.output;
  for (std::string const usage : {"",
                                  "--cluster a100-100g",
                                  "x.json --model gpt2-small --cluster a100-100g",
                                  "--model gpt2-small",
                                  "x.json --layers 3 --cluster a100-100g",
                                  "--model gpt2-small --cluster a100-100g --seed 99999999999999999999",
                                  "--model gpt2-small --cluster a100-100g --seed -1",
                                  "--model gpt2-small --cluster a100-100g --policy prefetch0",
                                  "--model gpt2-small --cluster a100-100g --policy prefetch2x",
                                  "--model gpt2-small --cluster a100-100g --policy fast",
                                  "--model gpt2-small --cluster a100-100g --strategy zero9",
                                  "--what",
                                  "x.json --cluster a100-100g --strategy ddp",
                                  "x.json --cluster a100-100g --recompute layer",
                                  "--model gpt2-small --cluster a100-100g --recompute auto,qkv",
                                  "--model gpt2-small --cluster a100-100g --recompute-collectives",
                                  "--model gpt2-small --cluster a100-100g --seed -3",
                                  "--model gpt2-small --cluster a100-100g --what-if ''",
                                  "--model gpt2-small --cluster a100-100g --policy weft,",
                                  "--model gpt2-small --cluster a100-100g --plot plotnoext"}) {
    EXPECT_EQ(run(usage).code, 2) << usage;
  }
  for (std::string const option : {" --contention", " --time-limit"}) {
    auto const endless = run(model + option + " nan");
    EXPECT_EQ(endless.code, 2) << option;
    EXPECT_NE(endless.output.find("no finite number"), std::string::npos) << endless.output;
  }
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_NE(run("--version").output.find("weft-schedule (weft) "), std::string::npos);
}

}  // namespace
}  // namespace weft::test
