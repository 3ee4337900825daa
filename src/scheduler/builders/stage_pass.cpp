#include "scheduler/builders/stage_pass.hpp"

#include <algorithm>
#include <utility>

namespace weft {

namespace {

constexpr std::int64_t kTokenBytes = sizeof(std::int32_t);
constexpr std::int64_t kFloatBytes = sizeof(float);

}  // namespace

StagePass::StagePass(LayerContext const& context)
    : context_(context),
      step_(context.step),
      first_layer_(context.plan.stage == 0 ? 1 : 0),
      end_layer_(context.parameters.units().size() - (is_last() ? 1 : 0)),
      batches_(static_cast<std::size_t>(context.plan.micro_batches)) {}

void StagePass::run() {
  int const count = context_.plan.micro_batches;
  int const ahead = std::min(in_flight() - 1, count);
  for (int index = 0; index < ahead; ++index) forward(index);
  for (int index = 0; index < count; ++index) {
    if (index + ahead < count) forward(index + ahead);
    backward(index);
  }
  step_.set_micro_batch(kNone);
  step_.set_layer(kNone);
}

void StagePass::forward(int index) {
  auto& batch = batches_[static_cast<std::size_t>(index)];
  step_.set_micro_batch(context_.plan.micro_batches > 1 ? index : kNone);
  step_.set_layer(kNone);
  OpId const begin = step_.next_op();
  TensorId at = is_first() ? embed(batch, index) : receive("forward.receive", backward_end(index - in_flight() - 1));
  TensorId const entry = is_first() ? batch.tokens : at;
  for (auto unit = first_layer_; unit < end_layer_; ++unit) {
    step_.set_layer(context_.parameters.units()[unit].layer);
    context_.parameters.open(unit, index, false);
    at = batch.layers.emplace_back(context_, unit, index).forward(at);
  }
  batch.forward_end = step_.writer(at);
  wait_for(step_.first_reader(entry, begin), backward_end(index - in_flight()));
  step_.set_layer(kNone);
  if (is_last()) {
    lose(batch, index, at);
  } else {
    batch.sent = send("forward.send", at);
  }
}

void StagePass::backward(int index) {
  auto& batch = batches_[static_cast<std::size_t>(index)];
  step_.set_micro_batch(context_.plan.micro_batches > 1 ? index : kNone);
  step_.set_layer(kNone);
  TensorId at = kNone;
  OpId const begin = step_.next_op();
  if (is_last()) {
    at = backward_head(batch, index);
  } else {
    auto after = backward_end(index - 2);
    after.push_back(batch.sent);
    at = receive("backward.receive", after);
  }
  TensorId const entry = at;
  auto const once = static_cast<std::size_t>(context_.plan.layers_gathered_once);
  for (auto unit = end_layer_; unit-- > first_layer_;) {
    step_.set_layer(context_.parameters.units()[unit].layer);
    if (end_layer_ - unit > once) context_.parameters.open(unit, index, true);
    at = batch.layers[unit - first_layer_].backward(at);
  }
  batch.backward_end = step_.writer(at);
  if (!is_last()) {
    OpId const first = step_.first_reader(entry, begin);
    auto const paired = static_cast<std::size_t>(index + in_flight() - 1);
    if (paired < batches_.size()) wait_for(first, {batches_[paired].forward_end});
    wait_for(first, backward_end(index - 1));
  }
  step_.set_layer(kNone);
  batch.gradient = at;
  if (is_first()) {
    backward_embed(batch, index);
  } else {
    send("backward.send", at);
  }
  batch.layers.clear();
}

TensorId StagePass::embed(MicroBatch& batch, int index) {
  constexpr std::size_t kUnit = 0;
  auto& parameters = context_.parameters;
  batch.tokens = step_.tensor("tokens", context_.tokens() * kTokenBytes);
  parameters.open(kUnit, index, false);
  auto reads = parameters.read(kUnit, "embedding", index);
  reads.push_back(batch.tokens);
  TensorId const embedded = step_.tensor("embedding", context_.activation(context_.shape.width));
  OpId const op = step_.compute("embedding", 0, std::move(reads), {embedded});
  // It reads only one row of the table for each token.
  step_.op(op).memory_bytes = static_cast<double>(step_.bytes_of({batch.tokens, embedded, embedded}));
  return step_.all_reduce("embedding.all_reduce", context_.groups.tensor, embedded);
}

void StagePass::backward_embed(MicroBatch const& batch, int index) {
  context_.parameters.add_gradients(0, "embedding", index, 0, {batch.tokens, batch.gradient});
}

std::size_t StagePass::table() const {
  return context_.shape.tied_embeddings && context_.plan.pipeline_stages == 1 ? 0 : head();
}

void StagePass::lose(MicroBatch& batch, int index, TensorId input) {
  auto& parameters = context_.parameters;
  parameters.open(head(), index, false);
  if (table() != head()) parameters.open(table(), index, false);
  batch.unnormed = input;
  batch.normed = step_.tensor("final_norm", context_.activation(context_.shape.width));
  auto reads = parameters.read(head(), "final_norm", index);
  reads.push_back(input);
  step_.compute("final_norm", 0, std::move(reads), {batch.normed});

  auto const share = (context_.shape.vocabulary + context_.plan.tensor_ranks - 1) / context_.plan.tensor_ranks;
  TensorId const logits = step_.tensor("head", context_.activation(share));
  reads = parameters.read(table(), "head", index);
  reads.push_back(batch.normed);
  auto const flops =
      2.0 * static_cast<double>(context_.tokens()) * static_cast<double>(parameters.elements(table(), "head"));
  step_.compute("head", flops, std::move(reads), {logits});
  batch.gradient = loss_gradient(logits, step_.tensor("labels", context_.tokens() * kTokenBytes));
}

/// The loss and its gradient in one: the gradient is written over the logits.
TensorId StagePass::loss_gradient(TensorId logits, TensorId labels) {
  std::vector<TensorId> reads = {logits, labels};
  // For each token: the largest logit and the sum of exponentials, over all shares.
  if (context_.groups.tensor != kNone) {
    TensorId const sums = step_.tensor("loss.sums", 2 * context_.tokens() * kFloatBytes);
    step_.compute("loss.sums", 0, {logits}, {sums});
    reads.push_back(step_.all_reduce("loss.all_reduce", context_.groups.tensor, sums));
  }
  TensorId const gradient = step_.tensor("loss.dx", step_.tensor(logits).bytes);
  step_.tensor(gradient).in_place_of = logits;
  step_.compute("loss", 0, std::move(reads), {step_.resident("loss", kFloatBytes), gradient});
  return gradient;
}

TensorId StagePass::backward_head(MicroBatch const& batch, int index) {
  auto& parameters = context_.parameters;
  auto const tokens = static_cast<double>(context_.tokens());
  auto const bytes = context_.activation(context_.shape.width);
  TensorId at = step_.tensor("head.dx", bytes);
  auto reads = parameters.read(table(), "head", index);
  reads.push_back(batch.gradient);
  step_.compute("head.dx", 2.0 * tokens * static_cast<double>(parameters.elements(table(), "head")), std::move(reads),
                {at});
  parameters.add_gradients(table(), "head", index, 2.0 * tokens, {batch.normed, batch.gradient});
  at = step_.all_reduce("head.dx.all_reduce", context_.groups.tensor, at);

  TensorId const result = step_.tensor("final_norm.dx", bytes);
  reads = parameters.read(head(), "final_norm", index);
  reads.insert(reads.end(), {at, batch.unnormed});
  step_.compute("final_norm.dx", 0, std::move(reads), {result});
  parameters.add_gradients(head(), "final_norm", index, 0, {batch.unnormed, at});
  return result;
}

TensorId StagePass::receive(char const* name, std::vector<OpId> const& after) {
  TensorId const received = step_.tensor(name, context_.activation(context_.shape.width));
  OpId const op = step_.collective(name, CollectiveKind::permute, context_.groups.stage, {}, {received});
  wait_for(op, after);
  return received;
}

OpId StagePass::send(char const* name, TensorId tensor) {
  return step_.collective(name, CollectiveKind::permute, context_.groups.stage, {tensor}, {});
}

std::vector<OpId> StagePass::backward_end(int index) const {
  if (index < 0) return {};
  return {batches_[static_cast<std::size_t>(index)].backward_end};
}

void StagePass::wait_for(OpId op, std::vector<OpId> const& earlier) {
  auto& after = step_.op(op).after;
  after.insert(after.end(), earlier.begin(), earlier.end());
}

}  // namespace weft
