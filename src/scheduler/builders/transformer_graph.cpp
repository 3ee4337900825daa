#include "weft/transformer_graph.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "scheduler/builders/check_plan.hpp"
#include "scheduler/builders/stage_pass.hpp"

namespace weft {

namespace {

/// The embedding where the stage is the first, then the stage's layers, then the head where it is the last.
std::vector<Unit> units_of(TransformerShape const& shape, TransformerPlan const& plan) {
  auto const first_layer = [&](int stage) {
    return static_cast<int>(std::int64_t{stage} * shape.layers / plan.pipeline_stages);
  };
  std::vector<Unit> units;
  if (plan.stage == 0) units.push_back(embedding_unit(shape, plan));
  for (int layer = first_layer(plan.stage); layer < first_layer(plan.stage + 1); ++layer) {
    units.push_back(layer_unit(shape, plan, layer));
  }
  if (plan.stage == plan.pipeline_stages - 1) units.push_back(head_unit(shape, plan));
  return units;
}

}  // namespace

std::string_view to_string(TrainingStrategy strategy) noexcept {
  constexpr std::array<std::string_view, 5> kNames = {"ddp", "zero1", "zero2", "zero3", "hsdp"};
  return kNames[static_cast<std::size_t>(strategy)];
}

OpGraph transformer_graph(TransformerShape const& shape, TransformerPlan const& plan) {
  check_transformer(shape, plan);
  StepGraph step(shape.name + " " + std::string(to_string(plan.strategy)));
  auto const groups = add_groups(step.graph(), mesh_of(plan));
  Parameters parameters(step, shape, plan, groups, units_of(shape, plan));
  LayerContext const context{step, parameters, shape, plan, groups};
  StagePass(context).run();
  parameters.finish();
  return std::move(step.graph());
}

}  // namespace weft
