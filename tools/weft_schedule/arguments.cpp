#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <sstream>

#include "weft/cluster.hpp"
#include "weft/version.hpp"
#include "weft_schedule/amounts.hpp"
#include "weft_schedule/settings.hpp"

namespace weft::schedule_tool {

namespace {

constexpr int kBadUsage = 2;
constexpr char const* kAbout =
    "Plans when each operator of a training step runs, and says how far that is from the best there can be.\n"
    "Exit code 0: done; 1: no order was found that fits the memory; 2: bad usage or input.";
constexpr char const* kModel = "A Transformer instead of a graph";
constexpr char const* kOutput = "Output";

struct WideField {
  char const* flag;
  std::int64_t TransformerShape::*member;
  char const* help;
};
constexpr std::array<WideField, 7> kWideFields = {{
    {"--width", &TransformerShape::width, "of a token's vector"},
    {"--heads", &TransformerShape::heads, "of attention"},
    {"--kv-heads", &TransformerShape::kv_heads, "of keys and values"},
    {"--ffn-width", &TransformerShape::ffn_width, "of the layers' inner vectors"},
    {"--vocabulary", &TransformerShape::vocabulary, "tokens there are"},
    {"--sequence", &TransformerShape::sequence, "tokens of a text"},
    {"--micro-batch", &TransformerShape::micro_batch, "texts that a rank computes at a time"},
}};

struct Field {
  char const* flag;
  int TransformerShape::*member;
  char const* help;
};
constexpr std::array<Field, 5> kFields = {{
    {"--layers", &TransformerShape::layers, "of the model"},
    {"--parameter-bytes", &TransformerShape::parameter_bytes, "of one parameter"},
    {"--activation-bytes", &TransformerShape::activation_bytes, "of an activation's element"},
    {"--gradient-bytes", &TransformerShape::gradient_bytes, "of a gradient's element"},
    {"--state-bytes", &TransformerShape::state_bytes, "that the optimizer keeps of a parameter"},
}};

struct PlanField {
  char const* flag;
  int TransformerPlan::*member;
  char const* help;
};
constexpr std::array<PlanField, 8> kPlanFields = {{
    {"--data-ranks", &TransformerPlan::data_ranks, "that compute different text"},
    {"--shard-ranks", &TransformerPlan::shard_ranks, "of them, among which hsdp shards"},
    {"--tensor-ranks", &TransformerPlan::tensor_ranks, "that share heads and inner vectors"},
    {"--pipeline-stages", &TransformerPlan::pipeline_stages, "that share the layers"},
    {"--stage", &TransformerPlan::stage, "whose step is planned, from 0"},
    {"--micro-batches", &TransformerPlan::micro_batches, "of a step"},
    {"--reduction-bytes", &TransformerPlan::reduction_bytes, "of an element while gradients are reduced; 0: as kept"},
    {"--gathered-once", &TransformerPlan::layers_gathered_once, "last layers that are not resharded after forward"},
}};

TrainingStrategy parse_strategy(std::string const& name) {
  for (auto const each : {TrainingStrategy::ddp, TrainingStrategy::zero1, TrainingStrategy::zero2,
                          TrainingStrategy::zero3, TrainingStrategy::hsdp}) {
    if (to_string(each) == name) return each;
  }
  throw CLI::ValidationError("--strategy", fmt::format("there is no \"{}\"", name));
}

void add_model(CLI::App& app, Settings& settings) {
  app.add_option("--model", settings.model, fmt::format("{}", fmt::join(transformer_preset_names(), ", ")))
      ->group(kModel);
  for (auto const& field : kWideFields) {
    auto const change = [&settings, member = field.member](std::int64_t value) {
      settings.shape_changes.emplace_back([=](TransformerShape& shape) { shape.*member = value; });
    };
    app.add_option_function<std::int64_t>(field.flag, change, field.help)->group(kModel);
  }
  for (auto const& field : kFields) {
    auto const change = [&settings, member = field.member](int value) {
      settings.shape_changes.emplace_back([=](TransformerShape& shape) { shape.*member = value; });
    };
    app.add_option_function<int>(field.flag, change, field.help)->group(kModel);
  }
  auto const set_strategy = [&settings](std::string const& name) { settings.plan.strategy = parse_strategy(name); };
  app.add_option_function<std::string>("--strategy", set_strategy, "ddp, zero1, zero2, zero3 or hsdp")
      ->default_str("ddp")
      ->group(kModel);
  for (auto const& field : kPlanFields) {
    app.add_option(field.flag, settings.plan.*field.member, field.help)->capture_default_str()->group(kModel);
  }
  app.add_flag("--clipping", settings.plan.clipping, "updates wait for the norm of all gradients")->group(kModel);
  app.add_flag("!--unmerged", settings.plan.merged, "a collective for each tensor rather than for a layer")
      ->group(kModel);
}

void add_output(CLI::App& app, Settings& settings) {
  app.add_option("--plan", settings.plan_file, "write the plan (docs/plan-file.md), as tools/check_plan.py reads it")
      ->group(kOutput);
  app.add_option("--trace", settings.trace, "write the timeline for Perfetto or chrome://tracing")->group(kOutput);
  app.add_option("--plot", settings.picture, "draw the timeline, its memory and all policies as PNG (needs matplotlib)")
      ->group(kOutput);
  app.add_option("--json", settings.json, "write the figures as JSON (- for standard output)")->group(kOutput);
  app.add_option("--graph-out", settings.graph_out, "write the graph in JSON (docs/op-graph.md)")->group(kOutput);
}

/// @throws CLI::ValidationError naming those there are.
std::vector<SchedulePolicy> parse_policies(std::string const& text) {
  std::vector<SchedulePolicy> all;
  std::vector<std::string_view> names;
  for (int i = 0; i < kSchedulePolicies; ++i) {
    all.push_back(static_cast<SchedulePolicy>(i));
    names.push_back(to_string(all.back()));
  }
  if (text == "all") return all;
  std::vector<SchedulePolicy> chosen;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    auto const found = std::find(names.begin(), names.end(), part);
    if (found == names.end()) {
      throw CLI::ValidationError("--policy",
                                 fmt::format("there is no \"{}\"; there are all, {}", part, fmt::join(names, ", ")));
    }
    auto const policy = static_cast<SchedulePolicy>(found - names.begin());
    if (std::find(chosen.begin(), chosen.end(), policy) == chosen.end()) chosen.push_back(policy);
  }
  if (chosen.empty()) throw CLI::ValidationError("--policy", "names none");
  return chosen;
}

/// What would have no effect is refused.
void check_combination(CLI::App& app, Settings& settings) {
  auto& again = settings.plan.recompute;
  settings.recompute = again == std::vector<std::string>{"auto"};
  if (settings.recompute) again.clear();
  if (std::find(again.begin(), again.end(), "auto") != again.end()) {
    throw CLI::ValidationError("--recompute", "auto stands alone");
  }
  if (settings.recompute_collectives && !settings.recompute) {
    throw CLI::ValidationError("--recompute-collectives", "is for --recompute auto");
  }
  if (!settings.model.empty()) return;
  if (!again.empty()) throw CLI::ValidationError("--recompute", "of a graph is auto; operators are named of a --model");
  for (auto const* option : app.get_options([](CLI::Option const* each) { return each->get_group() == kModel; })) {
    if (option->count() > 0) throw CLI::ValidationError(option->get_name(), "is for a --model, not for a graph");
  }
}

}  // namespace

Arguments parse_arguments(int argc, char** argv) {
  CLI::App app{kAbout};
  Settings settings;
  std::string policies = "all";
  app.set_version_flag("--version", fmt::format("weft-schedule (weft) {}", WEFT_VERSION_STRING));
  app.add_option(
      "graph", settings.graph,
      "OpGraph in JSON (docs/op-graph.md), XLA HLO text (.hlo), torch.profiler's trace, or an execution trace "
      "(ExecutionTraceObserver)");
  app.add_option("--cluster", settings.cluster,
                 fmt::format("{}, or a JSON file (docs/scheduler.md)", fmt::join(cluster_names(), ", ")))
      ->required();
  app.add_option("--memory", settings.memory,
                 "bytes of one rank: 80G, 70Gi, or 1.3x the least that the transients of an order without overlap "
                 "take; left out: the cluster's");
  app.add_option("--policy", policies, "some of them, with commas, or all")->capture_default_str();
  app.add_option("--contention", settings.contention, "computing takes 1 + this as long while a collective runs")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--what-if", settings.what_if,
                 fmt::format("plan that as well and compare: link=2x,memory=40G; of {}", kChangeKeys));
  app.add_option("--time-limit", settings.time_limit_s, "seconds for each policy's search")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option(
         "--recompute", settings.plan.recompute,
         fmt::format("auto: what has to be computed again to fit the memory is chosen; of a --model also layer, "
                     "or of {}",
                     fmt::join(recomputable_operators(), ", ")))
      ->delimiter(',');
  app.add_flag("--recompute-collectives", settings.recompute_collectives,
               "collectives may be repeated by --recompute auto");
  app.add_option("--seed", settings.seed, "of the random policy")->capture_default_str();
  app.add_flag("--replay", settings.replay,
               "how long the plans take where operators take other times: each 20 % more or less by chance, links 20 % "
               "slower and computing faster, and the reverse");
  add_model(app, settings);
  add_output(app, settings);
  try {
    app.parse(argc, argv);
    settings.policies = parse_policies(policies);
    if (settings.graph.empty() == settings.model.empty()) {
      throw CLI::ValidationError("graph", "either a file or --model is needed");
    }
    check_combination(app, settings);
  } catch (CLI::ParseError const& error) {
    return {{}, app.exit(error) == 0 ? 0 : kBadUsage};
  }
  return {std::move(settings), 0};
}

}  // namespace weft::schedule_tool
