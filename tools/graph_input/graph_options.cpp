#include "graph_input/graph_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace weft::graph_tool {

namespace {

constexpr char const* kModel = "A Transformer instead of a graph";

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

}  // namespace

void add_options(CLI::App& app, GraphSource& source) {
  app.add_option(
      "graph", source.graph,
      "OpGraph in JSON (docs/op-graph.md), XLA HLO text (.hlo), torch.profiler's trace, or an execution trace "
      "(ExecutionTraceObserver)");
  app.add_option("--model", source.model, fmt::format("{}", fmt::join(transformer_preset_names(), ", ")))
      ->group(kModel);
  for (auto const& field : kWideFields) {
    auto const change = [&source, member = field.member](std::int64_t value) {
      source.shape_changes.emplace_back([=](TransformerShape& shape) { shape.*member = value; });
    };
    app.add_option_function<std::int64_t>(field.flag, change, field.help)->group(kModel);
  }
  for (auto const& field : kFields) {
    auto const change = [&source, member = field.member](int value) {
      source.shape_changes.emplace_back([=](TransformerShape& shape) { shape.*member = value; });
    };
    app.add_option_function<int>(field.flag, change, field.help)->group(kModel);
  }
  auto const set_strategy = [&source](std::string const& name) { source.plan.strategy = parse_strategy(name); };
  app.add_option_function<std::string>("--strategy", set_strategy, "ddp, zero1, zero2, zero3 or hsdp")
      ->default_str("ddp")
      ->group(kModel);
  for (auto const& field : kPlanFields) {
    app.add_option(field.flag, source.plan.*field.member, field.help)->capture_default_str()->group(kModel);
  }
  app.add_option("--recompute", source.plan.recompute,
                 fmt::format("computed again in backward: layer, or of {}", fmt::join(recomputable_operators(), ", ")))
      ->delimiter(',')
      ->group(kModel);
  app.add_flag("--clipping", source.plan.clipping, "updates wait for the norm of all gradients")->group(kModel);
  app.add_flag("!--unmerged", source.plan.merged, "a collective for each tensor rather than for a layer")
      ->group(kModel);
}

void check_options(CLI::App& app, GraphSource const& source) {
  if (source.graph.empty() == source.model.empty()) {
    throw CLI::ValidationError("graph", "either a file or --model is needed");
  }
  if (!source.model.empty()) return;
  for (auto const* option : app.get_options([](CLI::Option const* each) { return each->get_group() == kModel; })) {
    if (option->count() > 0) throw CLI::ValidationError(option->get_name(), "is for a --model, not for a graph");
  }
}

}  // namespace weft::graph_tool
