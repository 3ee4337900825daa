#include "scheduler/builders/units.hpp"

#include <utility>

namespace weft {

namespace {

class UnitBuilder {
 public:
  UnitBuilder(TransformerShape const& shape, std::string name, int layer)
      : shape_(shape), unit_{.name = std::move(name), .layer = layer} {}

  void norm(std::string const& name) { add(name, name, shape_.width, shape_.width); }
  void matrix(std::string const& name, std::string const& used_by, std::int64_t in, std::int64_t out) {
    add(name, used_by, in * out, out);
  }
  Unit take() { return std::move(unit_); }

 private:
  void add(std::string const& name, std::string const& used_by, std::int64_t elements, std::int64_t bias) {
    unit_.weights.push_back({.name = name, .used_by = {used_by}, .elements = elements});
    if (shape_.biases) unit_.weights.push_back({.name = name + ".bias", .used_by = {used_by}, .elements = bias});
  }

  TransformerShape const& shape_;
  Unit unit_;
};

std::int64_t table_elements(TransformerShape const& shape, TransformerPlan const& plan) {
  return (shape.vocabulary + plan.tensor_ranks - 1) / plan.tensor_ranks * shape.width;
}

}  // namespace

Unit embedding_unit(TransformerShape const& shape, TransformerPlan const& plan) {
  Unit unit{.name = "embedding"};
  unit.weights.push_back({.name = "table",
                          .used_by = {"embedding"},
                          .elements = table_elements(shape, plan),
                          .at_both_ends = shape.tied_embeddings && plan.pipeline_stages > 1});
  if (shape.tied_embeddings && plan.pipeline_stages == 1) unit.weights.front().used_by.emplace_back("head");
  if (shape.positions > 0) {
    unit.weights.push_back({.name = "positions", .used_by = {"embedding"}, .elements = shape.positions * shape.width});
  }
  return unit;
}

Unit layer_unit(TransformerShape const& shape, TransformerPlan const& plan, int layer) {
  UnitBuilder unit(shape, "layer" + std::to_string(layer), layer);
  auto const width = shape.width;
  auto const q_width = width / plan.tensor_ranks;
  auto const kv_width = width / shape.heads * shape.kv_heads / plan.tensor_ranks;
  auto const ffn_width = shape.ffn_width / plan.tensor_ranks;
  unit.norm("attn_norm");
  unit.matrix("wq", "qkv", width, q_width);
  unit.matrix("wk", "qkv", width, kv_width);
  unit.matrix("wv", "qkv", width, kv_width);
  unit.matrix("wo", "projection", q_width, width);
  unit.norm("ffn_norm");
  if (shape.gated_ffn) unit.matrix("w_gate", "up", width, ffn_width);
  unit.matrix("w_up", "up", width, ffn_width);
  unit.matrix("w_down", "down", ffn_width, width);
  return unit.take();
}

Unit head_unit(TransformerShape const& shape, TransformerPlan const& plan) {
  UnitBuilder norm(shape, "head", kNone);
  norm.norm("final_norm");
  Unit unit = norm.take();
  if (!shape.tied_embeddings || plan.pipeline_stages > 1) {
    unit.weights.push_back({.name = "table",
                            .used_by = {"head"},
                            .elements = table_elements(shape, plan),
                            .at_both_ends = shape.tied_embeddings});
  }
  return unit;
}

std::int64_t parameter_count(TransformerShape const& shape) {
  std::int64_t elements = 0;
  auto const count = [&](Unit const& unit) {
    for (auto const& weight : unit.weights) elements += weight.elements;
  };
  TransformerPlan const one_rank;
  count(embedding_unit(shape, one_rank));
  count(head_unit(shape, one_rank));
  for (int layer = 0; layer < shape.layers; ++layer) count(layer_unit(shape, one_rank, layer));
  return elements;
}

}  // namespace weft
