#include "device/gpt_on_device.hpp"

#include <fmt/format.h>

#include <weft/error.hpp>

#include "device/device_workspace.hpp"
#include "gpt_slots.hpp"

namespace train_gpt {
namespace {

using weft::BufferView;

constexpr std::size_t kVocabulary = GptConfig::kVocabulary;

/// What `rows` rows use of a buffer that was made for more.
BufferView part(weft::Buffer const& buffer, std::size_t rows, std::size_t columns = 1) {
  return buffer.view().slice(0, rows * columns);
}

void done_with_bias(DeviceTensors& tensors, std::size_t weight) {
  tensors.gradient_done(weight + 1);  // a weight's bias follows it
  tensors.gradient_done(weight);
}

}  // namespace

GptOnDevice::GptOnDevice(GptConfig const& config, Settings const& settings, weft::Stream const& stream)
    : config_(config),
      width_(static_cast<std::size_t>(config.width)),
      max_rows_(static_cast<std::size_t>(settings.max_batch) * static_cast<std::size_t>(config.seq)),
      layers_(stream, {max_rows_, 4 * width_}),
      work_(std::make_unique<DeviceWorkspace>(config, settings.max_batch, settings.recompute, settings.type,
                                              stream.device().index)) {}
GptOnDevice::~GptOnDevice() = default;

weft::cuda::AttentionShape GptOnDevice::heads(std::size_t rows, std::size_t seq) const {
  return {rows / seq, seq, static_cast<std::size_t>(config_.heads), static_cast<std::size_t>(config_.head_width())};
}

void GptOnDevice::attention_forward(std::size_t layer, std::size_t rows, std::size_t seq, DeviceTensors& tensors) {
  DeviceBlock& a = work_->block(layer);
  auto const p = [&](Slot which) { return tensors.parameter(slot(layer, which)); };
  auto const shape = heads(rows, seq);
  auto const input = part(work_->inputs[layer], rows, width_);
  auto const norm = part(a.norm1, rows, width_);
  auto const qkv = part(a.qkv, rows, 3 * width_);
  auto const attended = part(a.attended, rows, width_);
  auto const middle = part(a.middle, rows, width_);
  layers_.layer_norm(norm, part(a.mean1, rows), part(a.rstd1, rows), input, p(kNorm1Weight), p(kNorm1Bias));
  layers_.linear(qkv, norm, p(kQkvWeight), {rows, width_, 3 * width_});
  layers_.add_bias(qkv, qkv, p(kQkvBias), 3 * width_);
  layers_.attention(attended, part(a.probabilities, shape.scores()), part(work_->scores, shape.scores()), qkv, shape);
  layers_.linear(middle, attended, p(kProjectWeight), {rows, width_, width_});
  layers_.add_bias_and_residual(middle, middle, p(kProjectBias), input);
}

void GptOnDevice::mlp_forward_hidden(std::size_t layer, std::size_t rows, DeviceTensors& tensors) {
  DeviceBlock& a = work_->block(layer);
  auto const p = [&](Slot which) { return tensors.parameter(slot(layer, which)); };
  auto const norm = part(a.norm2, rows, width_);
  auto const hidden = part(a.hidden, rows, 4 * width_);
  layers_.layer_norm(norm, part(a.mean2, rows), part(a.rstd2, rows), part(a.middle, rows, width_), p(kNorm2Weight),
                     p(kNorm2Bias));
  layers_.linear(hidden, norm, p(kExpandWeight), {rows, width_, 4 * width_});
  layers_.bias_gelu(part(a.activated, rows, 4 * width_), hidden, p(kExpandBias));
}

void GptOnDevice::mlp_forward_output(std::size_t layer, std::size_t rows, DeviceTensors& tensors) {
  DeviceBlock& a = work_->block(layer);
  auto const& to = layer + 1 < work_->inputs.size() ? work_->inputs[layer + 1] : work_->output;
  auto const out = part(to, rows, width_);
  layers_.linear(out, part(a.activated, rows, 4 * width_), tensors.parameter(slot(layer, kContractWeight)),
                 {rows, 4 * width_, width_});
  layers_.add_bias_and_residual(out, out, tensors.parameter(slot(layer, kContractBias)), part(a.middle, rows, width_));
}

weft::ConstBufferView GptOnDevice::logits(weft::ConstBufferView inputs, std::size_t seq, DeviceTensors& tensors) {
  std::size_t const rows = inputs.count;
  std::size_t const count = work_->inputs.size();
  if (rows == 0 || rows > max_rows_ || rows % seq != 0) {
    throw weft::Error(
        weft::ErrorCode::invalid_argument,
        fmt::format("GptOnDevice: {} bytes are no sequences of {}, {} bytes at most", rows, seq, max_rows_));
  }
  tensors.enter(Pass::forward, 0);
  layers_.embedding(part(work_->inputs[0], rows, width_), tensors.parameter(kTokens), tensors.parameter(kPositions),
                    inputs, seq);
  tensors.leave(Pass::forward, 0);
  for (std::size_t layer = 0; layer < count; ++layer) {
    tensors.enter(Pass::forward, unit_of_layer(layer));
    attention_forward(layer, rows, seq, tensors);
    mlp_forward_hidden(layer, rows, tensors);
    mlp_forward_output(layer, rows, tensors);
    tensors.leave(Pass::forward, unit_of_layer(layer));
  }
  std::size_t const norm = slot(count, kNorm1Weight);  // the final norm follows the last block
  auto const normed = part(work_->norm, rows, width_);
  auto const logits = part(work_->logits, rows, kVocabulary);
  tensors.enter(Pass::forward, unit_of_layer(count));
  layers_.layer_norm(normed, part(work_->mean, rows), part(work_->rstd, rows), part(work_->output, rows, width_),
                     tensors.parameter(norm), tensors.parameter(norm + 1));
  layers_.linear(logits, normed, tensors.parameter(norm + 2), {rows, width_, kVocabulary});
  tensors.leave(Pass::forward, unit_of_layer(count));
  return logits;
}

void GptOnDevice::forward(DeviceBatch const& batch, DeviceTensors& tensors, BufferView loss) {
  auto const scores = logits(batch.inputs, batch.seq, tensors);
  auto const scratch = part(work_->loss_scratch, weft::cuda::Layers::cross_entropy_scratch(batch.inputs.count));
  layers_.cross_entropy(loss, scratch, scores, batch.targets);
}

void GptOnDevice::head_backward(DeviceBatch const& batch, float share, weft::ConstBufferView scale,
                                DeviceTensors& tensors) {
  std::size_t const rows = batch.inputs.count;
  std::size_t const norm = slot(work_->inputs.size(), kNorm1Weight);
  std::size_t const head = norm + 2;
  auto const logits = part(work_->logits, rows, kVocabulary);
  auto const d_logits = work_->d_logits.count() == 0 ? logits : part(work_->d_logits, rows, kVocabulary);
  auto const narrow = part(work_->d_narrow, rows, width_);
  auto const output = part(work_->output, rows, width_);
  auto const mean = part(work_->mean, rows);
  auto const rstd = part(work_->rstd, rows);
  weft::cuda::LinearShape const shape{rows, width_, kVocabulary};
  layers_.cross_entropy_gradient(d_logits, part(work_->loss_scratch, weft::cuda::Layers::cross_entropy_scratch(rows)),
                                 logits, batch.targets, share, scale);
  layers_.linear_weight_gradient(tensors.gradient(head), d_logits, part(work_->norm, rows, width_), shape,
                                 tensors.keep());
  tensors.gradient_done(head);
  layers_.linear_input_gradient(narrow, d_logits, tensors.parameter(head), shape);
  layers_.layer_norm_gradient(part(work_->d_residual, rows, width_), tensors.gradient(norm), tensors.gradient(norm + 1),
                              narrow, output, mean, rstd, tensors.parameter(norm), tensors.keep(), false);
  done_with_bias(tensors, norm);
}

void GptOnDevice::mlp_backward(std::size_t layer, std::size_t rows, DeviceTensors& tensors) {
  DeviceBlock& a = work_->block(layer);
  auto const p = [&](Slot which) { return tensors.parameter(slot(layer, which)); };
  auto const g = [&](Slot which) { return tensors.gradient(slot(layer, which)); };
  auto const done = [&](Slot weight) { done_with_bias(tensors, slot(layer, weight)); };
  auto const residual = part(work_->d_residual, rows, width_);
  auto const narrow = part(work_->d_narrow, rows, width_);
  auto const wide = part(work_->d_wide, rows, 4 * width_);
  auto const middle = part(a.middle, rows, width_);
  auto const mean = part(a.mean2, rows);
  auto const rstd = part(a.rstd2, rows);
  weft::cuda::LinearShape const contract{rows, 4 * width_, width_};
  weft::cuda::LinearShape const expand{rows, width_, 4 * width_};

  layers_.linear_weight_gradient(g(kContractWeight), residual, part(a.activated, rows, 4 * width_), contract,
                                 tensors.keep());
  layers_.bias_gradient(g(kContractBias), residual, tensors.keep());
  done(kContractWeight);
  layers_.linear_input_gradient(wide, residual, p(kContractWeight), contract);
  layers_.bias_gelu_gradient(wide, g(kExpandBias), wide, part(a.hidden, rows, 4 * width_), p(kExpandBias),
                             tensors.keep());
  layers_.linear_weight_gradient(g(kExpandWeight), wide, part(a.norm2, rows, width_), expand, tensors.keep());
  done(kExpandWeight);
  layers_.linear_input_gradient(narrow, wide, p(kExpandWeight), expand);
  layers_.layer_norm_gradient(residual, g(kNorm2Weight), g(kNorm2Bias), narrow, middle, mean, rstd, p(kNorm2Weight),
                              tensors.keep());
  done(kNorm2Weight);
}

void GptOnDevice::attention_backward(std::size_t layer, std::size_t rows, std::size_t seq, DeviceTensors& tensors) {
  DeviceBlock& a = work_->block(layer);
  auto const p = [&](Slot which) { return tensors.parameter(slot(layer, which)); };
  auto const g = [&](Slot which) { return tensors.gradient(slot(layer, which)); };
  auto const done = [&](Slot weight) { done_with_bias(tensors, slot(layer, weight)); };
  auto const shape = heads(rows, seq);
  auto const input = part(work_->inputs[layer], rows, width_);
  auto const residual = part(work_->d_residual, rows, width_);
  auto const narrow = part(work_->d_narrow, rows, width_);
  auto const d_qkv = part(work_->d_wide, rows, 3 * width_);
  auto const mean = part(a.mean1, rows);
  auto const rstd = part(a.rstd1, rows);
  weft::cuda::LinearShape const project{rows, width_, width_};
  weft::cuda::LinearShape const to_qkv{rows, width_, 3 * width_};

  layers_.linear_weight_gradient(g(kProjectWeight), residual, part(a.attended, rows, width_), project, tensors.keep());
  layers_.bias_gradient(g(kProjectBias), residual, tensors.keep());
  done(kProjectWeight);
  layers_.linear_input_gradient(narrow, residual, p(kProjectWeight), project);
  layers_.attention_gradient(d_qkv, part(a.probabilities, shape.scores()), part(work_->scores, shape.scores()), narrow,
                             part(a.qkv, rows, 3 * width_), shape);
  layers_.linear_weight_gradient(g(kQkvWeight), d_qkv, part(a.norm1, rows, width_), to_qkv, tensors.keep());
  layers_.bias_gradient(g(kQkvBias), d_qkv, tensors.keep());
  done(kQkvWeight);
  layers_.linear_input_gradient(narrow, d_qkv, p(kQkvWeight), to_qkv);
  layers_.layer_norm_gradient(residual, g(kNorm1Weight), g(kNorm1Bias), narrow, input, mean, rstd, p(kNorm1Weight),
                              tensors.keep());
  done(kNorm1Weight);
}

void GptOnDevice::embedding_backward(DeviceBatch const& batch, DeviceTensors& tensors) {
  layers_.embedding_gradient(tensors.gradient(kTokens), tensors.gradient(kPositions),
                             part(work_->d_residual, batch.inputs.count, width_), batch.inputs, batch.seq, width_,
                             tensors.keep());
  tensors.gradient_done(kPositions);
  tensors.gradient_done(kTokens);
}

void GptOnDevice::backward(DeviceBatch const& batch, DeviceTensors& tensors, float share, weft::ConstBufferView scale) {
  std::size_t const rows = batch.inputs.count;
  std::size_t const count = work_->inputs.size();
  tensors.enter(Pass::backward, unit_of_layer(count));
  head_backward(batch, share, scale, tensors);
  tensors.leave(Pass::backward, unit_of_layer(count));
  for (std::size_t layer = count; layer-- > 0;) {
    tensors.enter(Pass::backward, unit_of_layer(layer));
    if (work_->recomputes()) {
      attention_forward(layer, rows, batch.seq, tensors);
      mlp_forward_hidden(layer, rows, tensors);
    }
    mlp_backward(layer, rows, tensors);
    attention_backward(layer, rows, batch.seq, tensors);
    tensors.leave(Pass::backward, unit_of_layer(layer));
  }
  tensors.enter(Pass::backward, 0);
  embedding_backward(batch, tensors);
  tensors.leave(Pass::backward, 0);
}

}  // namespace train_gpt
