#include "scheduler/builders/layer_pass.hpp"

#include <algorithm>
#include <utility>

namespace weft {

namespace {

constexpr std::array<char const*, kLayerOps> kNames = {"attn_norm", "qkv", "attention",  "projection", "attn_residual",
                                                       "ffn_norm",  "up",  "activation", "down",       "ffn_residual"};

}  // namespace

std::string to_string(LayerOp op) {
  return kNames[static_cast<std::size_t>(op)];
}

std::vector<std::string> recomputable_operators() {
  // Only the next layer needs the results of the last two, and its input is kept.
  return {kNames.begin(), kNames.end() - 2};
}

LayerPass::LayerPass(LayerContext const& context, std::size_t unit, int micro_batch)
    : context_(context), step_(context.step), unit_(unit), micro_batch_(micro_batch) {
  values_.fill(kNone);
}

TensorId LayerPass::forward(TensorId input) {
  input_ = input;
  for (std::size_t op = 0; op < kLayerOps; ++op) values_[op] = compute(static_cast<LayerOp>(op));
  TensorId const result = values_.back();
  for (std::size_t op = 0; op < kLayerOps; ++op) {
    if (recomputes(static_cast<LayerOp>(op))) values_[op] = kNone;
  }
  return result;
}

TensorId LayerPass::backward(TensorId gradient) {
  auto const& shape = context_.shape;
  auto const width = shape.width;
  auto const share = [&](std::int64_t all) { return all / context_.plan.tensor_ranks; };
  in_backward_ = true;
  TensorId at = backward_product(LayerOp::down, gradient, value(LayerOp::activation), share(shape.ffn_width));
  at = backward_activation(at);
  at = backward_product(LayerOp::up, at, value(LayerOp::ffn_norm), width);
  at = step_.all_reduce(name(LayerOp::up, ".dx.all_reduce"), context_.groups.tensor, at);
  TensorId const middle = backward_norm(LayerOp::ffn_norm, at, value(LayerOp::attn_residual), gradient);
  at = backward_product(LayerOp::projection, middle, value(LayerOp::attention), share(width));
  at = backward_attention(at);
  at = backward_product(LayerOp::qkv, at, value(LayerOp::attn_norm), width);
  at = step_.all_reduce(name(LayerOp::qkv, ".dx.all_reduce"), context_.groups.tensor, at);
  return backward_norm(LayerOp::attn_norm, at, input_, middle);
}

TensorId LayerPass::value(LayerOp op) {
  TensorId& value = values_[static_cast<std::size_t>(op)];
  if (value == kNone) {
    TensorId const again = compute(op);
    value = again;
  }
  return value;
}

TensorId LayerPass::compute(LayerOp op) {
  auto const& shape = context_.shape;
  auto const tensor_ranks = context_.plan.tensor_ranks;
  auto const kv_width = shape.width / shape.heads * shape.kv_heads;
  switch (op) {
    case LayerOp::attn_norm: return norm(op, input_);
    case LayerOp::qkv: return product(op, value(LayerOp::attn_norm), (shape.width + 2 * kv_width) / tensor_ranks);
    case LayerOp::attention: return attend(value(LayerOp::qkv));
    case LayerOp::projection:
      return step_.all_reduce(name(op, ".all_reduce"), context_.groups.tensor,
                              product(op, value(LayerOp::attention), shape.width));
    case LayerOp::attn_residual: return residual(op, input_, value(LayerOp::projection));
    case LayerOp::ffn_norm: return norm(op, value(LayerOp::attn_residual));
    case LayerOp::up:
      return product(op, value(LayerOp::ffn_norm), (shape.gated_ffn ? 2 : 1) * shape.ffn_width / tensor_ranks);
    case LayerOp::activation: {
      TensorId const up = value(LayerOp::up);
      TensorId const result = step_.tensor(name(op), context_.activation(shape.ffn_width / tensor_ranks));
      step_.compute(name(op), 0, {up}, {result});
      return result;
    }
    case LayerOp::down:
      return step_.all_reduce(name(op, ".all_reduce"), context_.groups.tensor,
                              product(op, value(LayerOp::activation), shape.width));
    case LayerOp::ffn_residual: return residual(op, value(LayerOp::attn_residual), value(LayerOp::down));
  }
  return kNone;
}

TensorId LayerPass::norm(LayerOp op, TensorId input) {
  TensorId const result = step_.tensor(name(op), context_.activation(context_.shape.width));
  step_.compute(name(op), 0, with_weights(op, {input}), {result});
  return result;
}

TensorId LayerPass::product(LayerOp op, TensorId input, std::int64_t width) {
  TensorId const result = step_.tensor(name(op), context_.activation(width));
  step_.compute(name(op), product_flops(op), with_weights(op, {input}), {result});
  return result;
}

TensorId LayerPass::residual(LayerOp op, TensorId input, TensorId branch) {
  TensorId const result = step_.tensor(name(op), context_.activation(context_.shape.width));
  step_.tensor(result).in_place_of = branch;
  step_.compute(name(op), 0, {input, branch}, {result});
  return result;
}

TensorId LayerPass::attend(TensorId qkv) {
  auto const& shape = context_.shape;
  constexpr std::int64_t kScaleBytes = sizeof(float);
  auto const op = LayerOp::attention;
  TensorId const result = step_.tensor(name(op), context_.activation(shape.width / context_.plan.tensor_ranks));
  scales_ =
      step_.tensor(name(op, ".scales"), context_.tokens() * (shape.heads / context_.plan.tensor_ranks) * kScaleBytes);
  step_.compute(name(op), attention_flops(), {qkv}, {result, scales_});
  return result;
}

TensorId LayerPass::backward_product(LayerOp op, TensorId gradient, TensorId input, std::int64_t input_width) {
  TensorId const result = step_.tensor(name(op, ".dx"), context_.activation(input_width));
  step_.compute(name(op, ".dx"), product_flops(op), with_weights(op, {gradient}), {result});
  context_.parameters.add_gradients(unit_, to_string(op), micro_batch_, 2.0 * static_cast<double>(context_.tokens()),
                                    {input, gradient});
  return result;
}

TensorId LayerPass::backward_norm(LayerOp op, TensorId gradient, TensorId input, TensorId skipped) {
  TensorId const result = step_.tensor(name(op, ".dx"), context_.activation(context_.shape.width));
  step_.compute(name(op, ".dx"), 0, with_weights(op, {gradient, input, skipped}), {result});
  context_.parameters.add_gradients(unit_, to_string(op), micro_batch_, 0, {input, gradient});
  return result;
}

TensorId LayerPass::backward_attention(TensorId gradient) {
  auto const op = LayerOp::attention;
  // The products of queries and keys are computed again: five products rather than two.
  constexpr double kToForward = 2.5;
  TensorId const qkv = value(LayerOp::qkv);
  TensorId const attended = value(LayerOp::attention);
  TensorId const result = step_.tensor(name(op, ".dx"), step_.tensor(qkv).bytes);
  step_.compute(name(op, ".dx"), kToForward * attention_flops(), {gradient, qkv, attended, scales_}, {result});
  return result;
}

TensorId LayerPass::backward_activation(TensorId gradient) {
  auto const op = LayerOp::activation;
  TensorId const up = value(LayerOp::up);
  TensorId const result = step_.tensor(name(op, ".dx"), step_.tensor(up).bytes);
  step_.compute(name(op, ".dx"), 0, {gradient, up}, {result});
  return result;
}

bool LayerPass::recomputes(LayerOp op) const {
  auto const& names = context_.plan.recompute;
  auto const named = [&](std::string const& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return named("layer") || named(to_string(op));
}

std::string LayerPass::name(LayerOp op, std::string const& what) const {
  bool const again = in_backward_ && what.find(".dx") == std::string::npos;
  return context_.parameters.units()[unit_].name + "." + to_string(op) + (again ? ".again" : "") + what;
}

std::vector<TensorId> LayerPass::with_weights(LayerOp op, std::vector<TensorId> reads) const {
  auto const weights = context_.parameters.read(unit_, to_string(op), micro_batch_);
  reads.insert(reads.end(), weights.begin(), weights.end());
  return reads;
}

double LayerPass::product_flops(LayerOp op) const {
  return 2.0 * static_cast<double>(context_.tokens()) *
         static_cast<double>(context_.parameters.elements(unit_, to_string(op)));
}

double LayerPass::attention_flops() const {
  auto const& shape = context_.shape;
  auto const width = shape.width / context_.plan.tensor_ranks;
  // Two products of `sequence` x `width` for each token, half of which causality saves.
  return 2.0 * static_cast<double>(context_.tokens()) * static_cast<double>(shape.sequence * width);
}

}  // namespace weft
