#include "gpt_model.hpp"

#include <cblas.h>

#include <algorithm>

#include <fmt/format.h>

#include <weft/error.hpp>

#include "gpt_layers.hpp"
#include "gpt_slots.hpp"
#include "workspace.hpp"

namespace train_gpt {
namespace {

void done_with_bias(Tensors& tensors, std::size_t weight) {
  tensors.gradient_done(weight + 1);  // a weight's bias follows it
  tensors.gradient_done(weight);
}

}  // namespace

GptModel::GptModel(GptConfig const& config, Settings const& settings)
    : config_(config),
      settings_(settings),
      parameters_(config),
      work_(std::make_unique<Workspace>(config, settings.max_batch, settings.recompute)) {}
GptModel::~GptModel() = default;
GptModel::GptModel(GptModel&&) noexcept = default;
GptModel& GptModel::operator=(GptModel&&) noexcept = default;

void GptModel::attention_forward_part(std::size_t layer, int rows, int seq, Tensors& tensors) {
  int const width = config_.width;
  BlockActivations& a = work_->block(layer);
  float const* const input = work_->inputs[layer].data();
  auto const p = [&](Slot which) { return tensors.parameter(slot(layer, which)); };

  layer_norm_forward(a.norm1.data(), a.mean1.data(), a.rstd1.data(), input, p(kNorm1Weight), p(kNorm1Bias), rows,
                     width);
  linear_forward(a.qkv.data(), a.norm1.data(), p(kQkvWeight), p(kQkvBias), rows, width, 3 * width);
  attention_forward(a.attended.data(), a.probabilities.data(), a.qkv.data(),
                    {rows / seq, seq, config_.heads, config_.head_width()});
  linear_forward(a.middle.data(), a.attended.data(), p(kProjectWeight), p(kProjectBias), rows, width, width);
  cblas_saxpy(rows * width, 1.0F, input, 1, a.middle.data(), 1);
}

void GptModel::mlp_forward_hidden(std::size_t layer, int rows, Tensors& tensors) {
  int const width = config_.width;
  BlockActivations& a = work_->block(layer);
  auto const p = [&](Slot which) { return tensors.parameter(slot(layer, which)); };
  layer_norm_forward(a.norm2.data(), a.mean2.data(), a.rstd2.data(), a.middle.data(), p(kNorm2Weight), p(kNorm2Bias),
                     rows, width);
  linear_forward(a.hidden.data(), a.norm2.data(), p(kExpandWeight), p(kExpandBias), rows, width, 4 * width);
  gelu_forward(a.activated.data(), a.hidden.data(),
               static_cast<std::size_t>(rows) * 4 * static_cast<std::size_t>(width));
}

void GptModel::mlp_forward_output(std::size_t layer, int rows, Tensors& tensors) {
  int const width = config_.width;
  BlockActivations& a = work_->block(layer);
  float* const out = layer + 1 < work_->inputs.size() ? work_->inputs[layer + 1].data() : work_->output.data();
  linear_forward(out, a.activated.data(), tensors.parameter(slot(layer, kContractWeight)),
                 tensors.parameter(slot(layer, kContractBias)), rows, 4 * width, width);
  cblas_saxpy(rows * width, 1.0F, a.middle.data(), 1, out, 1);
}

void GptModel::run_forward(std::span<std::uint8_t const> inputs, int seq, Tensors& tensors) {
  int const rows = static_cast<int>(inputs.size());
  int const width = config_.width;
  if (rows == 0 || rows > settings_.max_batch * config_.seq || rows % seq != 0) {
    throw weft::Error(
        weft::ErrorCode::invalid_argument,
        fmt::format("GptModel: {} bytes are no batch of 1 to {} sequences of {}", rows, settings_.max_batch, seq));
  }
  std::size_t const layers = work_->inputs.size();
  tensors.enter(Pass::forward, 0);
  embedding_forward(work_->inputs[0].data(), tensors.parameter(kTokens), tensors.parameter(kPositions), inputs, seq,
                    width);
  tensors.leave(Pass::forward, 0);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    tensors.enter(Pass::forward, unit_of_layer(layer));
    attention_forward_part(layer, rows, seq, tensors);
    mlp_forward_hidden(layer, rows, tensors);
    mlp_forward_output(layer, rows, tensors);
    tensors.leave(Pass::forward, unit_of_layer(layer));
  }
  std::size_t const norm = slot(layers, kNorm1Weight);  // the final norm follows the last block
  tensors.enter(Pass::forward, unit_of_layer(layers));
  layer_norm_forward(work_->norm.data(), work_->mean.data(), work_->rstd.data(), work_->output.data(),
                     tensors.parameter(norm), tensors.parameter(norm + 1), rows, width);
  linear_forward(work_->logits.data(), work_->norm.data(), tensors.parameter(norm + 2), nullptr, rows, width,
                 GptConfig::kVocabulary);
  tensors.leave(Pass::forward, unit_of_layer(layers));
}

float GptModel::forward(Batch const& batch, Tensors& tensors) {
  run_forward(batch.inputs, config_.seq, tensors);
  return cross_entropy(work_->logits.data(), batch.targets, GptConfig::kVocabulary);
}

std::span<float const> GptModel::next_byte_logits(std::span<std::uint8_t const> text, Tensors& tensors) {
  run_forward(text, static_cast<int>(text.size()), tensors);
  return {work_->logits.data() + (text.size() - 1) * GptConfig::kVocabulary, GptConfig::kVocabulary};
}

void GptModel::head_backward(Batch const& batch, int rows, float scale, Tensors& tensors) {
  int const width = config_.width;
  float* residual = work_->d_residual.data();
  float* narrow = work_->d_narrow.data();
  std::size_t const norm = slot(work_->inputs.size(), kNorm1Weight);
  std::size_t const head = norm + 2;
  cross_entropy_backward(work_->logits.data(), batch.targets, GptConfig::kVocabulary, scale);
  linear_backward_weights(tensors.gradient(head), nullptr, work_->logits.data(), work_->norm.data(), rows, width,
                          GptConfig::kVocabulary, tensors.keep());
  tensors.gradient_done(head);
  linear_backward_input(narrow, work_->logits.data(), tensors.parameter(head), rows, width, GptConfig::kVocabulary);
  layer_norm_backward_weights(tensors.gradient(norm), tensors.gradient(norm + 1), narrow, work_->output.data(),
                              work_->mean.data(), work_->rstd.data(), rows, width, tensors.keep());
  done_with_bias(tensors, norm);
  std::fill_n(residual, static_cast<std::size_t>(rows) * static_cast<std::size_t>(width), 0.0F);
  layer_norm_backward_input(residual, narrow, work_->output.data(), work_->mean.data(), work_->rstd.data(),
                            tensors.parameter(norm), rows, width);
}

void GptModel::mlp_backward(std::size_t layer, int rows, Tensors& tensors) {
  int const width = config_.width;
  BlockActivations& a = work_->block(layer);
  float* residual = work_->d_residual.data();
  float* wide = work_->d_wide.data();
  float* narrow = work_->d_narrow.data();
  auto const p = [&](Slot which) { return tensors.parameter(slot(layer, which)); };
  auto const g = [&](Slot which) { return tensors.gradient(slot(layer, which)); };
  auto const done = [&](Slot weight) { done_with_bias(tensors, slot(layer, weight)); };

  linear_backward_weights(g(kContractWeight), g(kContractBias), residual, a.activated.data(), rows, 4 * width, width,
                          tensors.keep());
  done(kContractWeight);
  linear_backward_input(wide, residual, p(kContractWeight), rows, 4 * width, width);
  gelu_backward(wide, a.hidden.data(), static_cast<std::size_t>(rows) * 4 * static_cast<std::size_t>(width));
  linear_backward_weights(g(kExpandWeight), g(kExpandBias), wide, a.norm2.data(), rows, width, 4 * width,
                          tensors.keep());
  done(kExpandWeight);
  linear_backward_input(narrow, wide, p(kExpandWeight), rows, width, 4 * width);
  layer_norm_backward_weights(g(kNorm2Weight), g(kNorm2Bias), narrow, a.middle.data(), a.mean2.data(), a.rstd2.data(),
                              rows, width, tensors.keep());
  done(kNorm2Weight);
  layer_norm_backward_input(residual, narrow, a.middle.data(), a.mean2.data(), a.rstd2.data(), p(kNorm2Weight), rows,
                            width);
}

void GptModel::attention_block_backward(std::size_t layer, int rows, int seq, Tensors& tensors) {
  int const width = config_.width;
  BlockActivations& a = work_->block(layer);
  float const* const input = work_->inputs[layer].data();
  float* residual = work_->d_residual.data();
  float* wide = work_->d_wide.data();
  float* narrow = work_->d_narrow.data();
  auto const p = [&](Slot which) { return tensors.parameter(slot(layer, which)); };
  auto const g = [&](Slot which) { return tensors.gradient(slot(layer, which)); };
  auto const done = [&](Slot weight) { done_with_bias(tensors, slot(layer, weight)); };

  linear_backward_weights(g(kProjectWeight), g(kProjectBias), residual, a.attended.data(), rows, width, width,
                          tensors.keep());
  done(kProjectWeight);
  linear_backward_input(narrow, residual, p(kProjectWeight), rows, width, width);
  attention_backward(wide, work_->d_scores.data(), narrow, a.qkv.data(), a.probabilities.data(),
                     {rows / seq, seq, config_.heads, config_.head_width()});
  linear_backward_weights(g(kQkvWeight), g(kQkvBias), wide, a.norm1.data(), rows, width, 3 * width, tensors.keep());
  done(kQkvWeight);
  linear_backward_input(narrow, wide, p(kQkvWeight), rows, width, 3 * width);
  layer_norm_backward_weights(g(kNorm1Weight), g(kNorm1Bias), narrow, input, a.mean1.data(), a.rstd1.data(), rows,
                              width, tensors.keep());
  done(kNorm1Weight);
  layer_norm_backward_input(residual, narrow, input, a.mean1.data(), a.rstd1.data(), p(kNorm1Weight), rows, width);
}

void GptModel::embedding_backward(Batch const& batch, int rows, Tensors& tensors) {
  float const* const residual = work_->d_residual.data();
  position_embedding_backward(tensors.gradient(kPositions), residual, rows, config_.seq, config_.seq, config_.width,
                              tensors.keep());
  tensors.gradient_done(kPositions);
  token_embedding_backward(tensors.gradient(kTokens), residual, batch.inputs, config_.width, GptConfig::kVocabulary,
                           tensors.keep());
  tensors.gradient_done(kTokens);
}

std::size_t GptModel::backward_parts() const noexcept {
  return 2 * work_->inputs.size() + 2;
}

std::size_t GptModel::backward_part_of(std::size_t index) const noexcept {
  std::size_t const layers = work_->inputs.size();
  if (index < kFirstBlock) return backward_parts() - 1;
  std::size_t const layer = (index - kFirstBlock) / kSlots;
  if (layer >= layers) return 0;
  bool const attention = index < slot(layer, kNorm2Weight);
  return 1 + 2 * (layers - 1 - layer) + (attention ? 1 : 0);
}

void GptModel::backward_part(std::size_t part, Batch const& batch, Tensors& tensors, float scale) {
  int const rows = static_cast<int>(batch.inputs.size());
  std::size_t const layers = work_->inputs.size();
  bool const is_head = part == 0;
  if (is_head || part + 1 == backward_parts()) {
    std::size_t const unit = is_head ? unit_of_layer(layers) : 0;
    tensors.enter(Pass::backward, unit);
    is_head ? head_backward(batch, rows, scale, tensors) : embedding_backward(batch, rows, tensors);
    tensors.leave(Pass::backward, unit);
    return;
  }
  std::size_t const layer = layers - 1 - (part - 1) / 2;
  if (part % 2 == 1) {
    tensors.enter(Pass::backward, unit_of_layer(layer));
    if (work_->recomputes()) {
      attention_forward_part(layer, rows, config_.seq, tensors);
      mlp_forward_hidden(layer, rows, tensors);
    }
    mlp_backward(layer, rows, tensors);
  } else {
    attention_block_backward(layer, rows, config_.seq, tensors);
    tensors.leave(Pass::backward, unit_of_layer(layer));
  }
}

void GptModel::backward(Batch const& batch, Tensors& tensors, float scale) {
  for (std::size_t part = 0; part < backward_parts(); ++part) backward_part(part, batch, tensors, scale);
}

void use_one_blas_thread() {
  openblas_set_num_threads(1);
}

}  // namespace train_gpt
