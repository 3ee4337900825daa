#include "gpt_model.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <weft/error.hpp>

#include "gpt_layers.hpp"
#include "random.hpp"
#include "workspace.hpp"

namespace train_gpt {
namespace {

/// Positions of a block's tensors after the block's first one, in forward order.
enum Slot : std::size_t {
  kNorm1Weight,
  kNorm1Bias,
  kQkvWeight,
  kQkvBias,
  kProjectWeight,
  kProjectBias,
  kNorm2Weight,
  kNorm2Bias,
  kExpandWeight,
  kExpandBias,
  kContractWeight,
  kContractBias,
  kSlots
};

constexpr std::size_t kTokens = 0;
constexpr std::size_t kPositions = 1;
constexpr std::size_t kFirstBlock = 2;

constexpr std::size_t slot(std::size_t layer, Slot which) {
  return kFirstBlock + layer * kSlots + which;
}

}  // namespace

/// Where gradients go and who is told, for one backward pass.
struct GptModel::Gradients {
  GradientView const& view;
  OnGradient const& done;
  float keep;

  [[nodiscard]] float* operator[](std::size_t index) const { return static_cast<float*>(view(index).data); }
};

std::shared_ptr<Workspace> GptModel::make_workspace(GptConfig const& config, int max_batch) {
  return std::make_shared<Workspace>(config, max_batch);
}

GptModel::GptModel(GptConfig const& config, int max_batch, std::shared_ptr<Workspace> workspace)
    : config_(config),
      max_batch_(max_batch),
      work_(workspace ? std::move(workspace) : make_workspace(config, max_batch)) {
  int const width = config.width;
  add_parameter("embedding.tokens", GptConfig::kVocabulary * width);
  add_parameter("embedding.positions", config.seq * width);
  for (int layer = 0; layer < config.layers; ++layer) {
    std::string const prefix = fmt::format("layer{}.", layer);
    add_parameter(prefix + "norm1.weight", width);
    add_parameter(prefix + "norm1.bias", width);
    add_parameter(prefix + "attention.qkv.weight", width * 3 * width);
    add_parameter(prefix + "attention.qkv.bias", 3 * width);
    add_parameter(prefix + "attention.project.weight", width * width);
    add_parameter(prefix + "attention.project.bias", width);
    add_parameter(prefix + "norm2.weight", width);
    add_parameter(prefix + "norm2.bias", width);
    add_parameter(prefix + "mlp.expand.weight", width * 4 * width);
    add_parameter(prefix + "mlp.expand.bias", 4 * width);
    add_parameter(prefix + "mlp.contract.weight", 4 * width * width);
    add_parameter(prefix + "mlp.contract.bias", width);
  }
  add_parameter("norm.weight", width);
  add_parameter("norm.bias", width);
  add_parameter("head.weight", width * GptConfig::kVocabulary);
}

void GptModel::add_parameter(std::string name, int count) {
  memory_.push_back(weft::Buffer::host(static_cast<std::size_t>(count), weft::DataType::f32));
  parameters_.push_back(memory_.back().view());
  names_.push_back(std::move(name));
}

void GptModel::initialise(std::uint64_t seed) {
  double const residual_deviation = 0.02 / std::sqrt(2.0 * config_.layers);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    std::span<float> const values(parameter(i), parameters_[i].count);
    std::string const& name = names_[i];
    if (name.ends_with(".bias")) {
      std::fill(values.begin(), values.end(), 0.0F);
    } else if (name.find("norm") != std::string::npos) {
      std::fill(values.begin(), values.end(), 1.0F);
    } else {
      bool const residual = name.ends_with("project.weight") || name.ends_with("contract.weight");
      Random random(mix(seed) + i);
      for (float& value : values) {
        value = static_cast<float>(random.normal() * (residual ? residual_deviation : 0.02));
      }
    }
  }
}

void GptModel::use_parameters(std::vector<weft::BufferView> parameters) {
  bool const same = std::equal(parameters.begin(), parameters.end(), parameters_.begin(), parameters_.end(),
                               [](auto const& a, auto const& b) { return a.count == b.count && a.dtype == b.dtype; });
  if (!same) {
    throw weft::Error(weft::ErrorCode::invalid_argument, "GptModel: these are not the parameters of such a model");
  }
  parameters_ = std::move(parameters);
  memory_.clear();
}

std::size_t GptModel::parameter_count() const noexcept {
  std::size_t count = 0;
  for (weft::BufferView const& parameter : parameters_) {
    count += parameter.count;
  }
  return count;
}

void GptModel::block_forward(std::size_t layer, int rows, int seq, BeforeUse const& before_use) {
  int const width = config_.width;
  BlockActivations& a = work_->blocks[layer];
  float* out = layer + 1 < work_->blocks.size() ? work_->blocks[layer + 1].input.data() : work_->output.data();
  auto const p = [&](Slot which) { return used(slot(layer, which), before_use); };
  auto const elements = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);

  layer_norm_forward(a.norm1.data(), a.mean1.data(), a.rstd1.data(), a.input.data(), p(kNorm1Weight), p(kNorm1Bias),
                     rows, width);
  linear_forward(a.qkv.data(), a.norm1.data(), p(kQkvWeight), p(kQkvBias), rows, width, 3 * width);
  attention_forward(a.attended.data(), a.probabilities.data(), a.qkv.data(),
                    {rows / seq, seq, config_.heads, config_.head_width()});
  linear_forward(a.middle.data(), a.attended.data(), p(kProjectWeight), p(kProjectBias), rows, width, width);
  cblas_saxpy(static_cast<int>(elements), 1.0F, a.input.data(), 1, a.middle.data(), 1);

  layer_norm_forward(a.norm2.data(), a.mean2.data(), a.rstd2.data(), a.middle.data(), p(kNorm2Weight), p(kNorm2Bias),
                     rows, width);
  linear_forward(a.hidden.data(), a.norm2.data(), p(kExpandWeight), p(kExpandBias), rows, width, 4 * width);
  gelu_forward(a.activated.data(), a.hidden.data(), 4 * elements);
  linear_forward(out, a.activated.data(), p(kContractWeight), p(kContractBias), rows, 4 * width, width);
  cblas_saxpy(static_cast<int>(elements), 1.0F, a.middle.data(), 1, out, 1);
}

void GptModel::run_forward(std::span<std::uint8_t const> inputs, int seq, BeforeUse const& before_use) {
  int const rows = static_cast<int>(inputs.size());
  int const width = config_.width;
  if (rows == 0 || rows > max_batch_ * config_.seq || rows % seq != 0) {
    throw weft::Error(weft::ErrorCode::invalid_argument,
                      fmt::format("GptModel: {} bytes are no batch of 1 to {} sequences of {}", rows, max_batch_, seq));
  }
  std::size_t const norm = slot(work_->blocks.size(), kNorm1Weight);  // the final norm follows the last block
  auto const p = [&](std::size_t index) { return used(index, before_use); };
  embedding_forward(work_->blocks[0].input.data(), p(kTokens), p(kPositions), inputs, seq, width);
  for (std::size_t layer = 0; layer < work_->blocks.size(); ++layer) {
    block_forward(layer, rows, seq, before_use);
  }
  layer_norm_forward(work_->norm.data(), work_->mean.data(), work_->rstd.data(), work_->output.data(), p(norm),
                     p(norm + 1), rows, width);
  linear_forward(work_->logits.data(), work_->norm.data(), p(norm + 2), nullptr, rows, width, GptConfig::kVocabulary);
}

float GptModel::forward(Batch const& batch, BeforeUse const& before_use) {
  run_forward(batch.inputs, config_.seq, before_use);
  return cross_entropy(work_->logits.data(), batch.targets, GptConfig::kVocabulary);
}

std::span<float const> GptModel::next_byte_logits(std::span<std::uint8_t const> text) {
  run_forward(text, static_cast<int>(text.size()), {});
  return {work_->logits.data() + (text.size() - 1) * GptConfig::kVocabulary, GptConfig::kVocabulary};
}

void GptModel::mlp_backward(std::size_t layer, int rows, Gradients const& gradients) {
  int const width = config_.width;
  BlockActivations& a = work_->blocks[layer];
  float* residual = work_->d_residual.data();
  float* wide = work_->d_wide.data();
  float* narrow = work_->d_narrow.data();
  auto const g = [&](Slot which) { return gradients[slot(layer, which)]; };
  auto const done = [&](Slot weight) {  // a weight's bias follows it
    gradients.done(slot(layer, weight) + 1);
    gradients.done(slot(layer, weight));
  };

  linear_backward_weights(g(kContractWeight), g(kContractBias), residual, a.activated.data(), rows, 4 * width, width,
                          gradients.keep);
  done(kContractWeight);
  linear_backward_input(wide, residual, parameter(slot(layer, kContractWeight)), rows, 4 * width, width);
  gelu_backward(wide, a.hidden.data(), static_cast<std::size_t>(rows) * 4 * static_cast<std::size_t>(width));
  linear_backward_weights(g(kExpandWeight), g(kExpandBias), wide, a.norm2.data(), rows, width, 4 * width,
                          gradients.keep);
  done(kExpandWeight);
  linear_backward_input(narrow, wide, parameter(slot(layer, kExpandWeight)), rows, width, 4 * width);
  layer_norm_backward_weights(g(kNorm2Weight), g(kNorm2Bias), narrow, a.middle.data(), a.mean2.data(), a.rstd2.data(),
                              rows, width, gradients.keep);
  done(kNorm2Weight);
  layer_norm_backward_input(residual, narrow, a.middle.data(), a.mean2.data(), a.rstd2.data(),
                            parameter(slot(layer, kNorm2Weight)), rows, width);
}

void GptModel::attention_block_backward(std::size_t layer, int rows, int seq, Gradients const& gradients) {
  int const width = config_.width;
  BlockActivations& a = work_->blocks[layer];
  float* residual = work_->d_residual.data();
  float* wide = work_->d_wide.data();
  float* narrow = work_->d_narrow.data();
  auto const g = [&](Slot which) { return gradients[slot(layer, which)]; };
  auto const done = [&](Slot weight) {
    gradients.done(slot(layer, weight) + 1);
    gradients.done(slot(layer, weight));
  };

  linear_backward_weights(g(kProjectWeight), g(kProjectBias), residual, a.attended.data(), rows, width, width,
                          gradients.keep);
  done(kProjectWeight);
  linear_backward_input(narrow, residual, parameter(slot(layer, kProjectWeight)), rows, width, width);
  attention_backward(wide, work_->d_scores.data(), narrow, a.qkv.data(), a.probabilities.data(),
                     {rows / seq, seq, config_.heads, config_.head_width()});
  linear_backward_weights(g(kQkvWeight), g(kQkvBias), wide, a.norm1.data(), rows, width, 3 * width, gradients.keep);
  done(kQkvWeight);
  linear_backward_input(narrow, wide, parameter(slot(layer, kQkvWeight)), rows, width, 3 * width);
  layer_norm_backward_weights(g(kNorm1Weight), g(kNorm1Bias), narrow, a.input.data(), a.mean1.data(), a.rstd1.data(),
                              rows, width, gradients.keep);
  done(kNorm1Weight);
  layer_norm_backward_input(residual, narrow, a.input.data(), a.mean1.data(), a.rstd1.data(),
                            parameter(slot(layer, kNorm1Weight)), rows, width);
}

void GptModel::backward(Batch const& batch, GradientView const& gradient, OnGradient const& on_gradient,
                        BackwardOptions const& options) {
  Gradients const gradients{gradient, on_gradient, options.accumulate ? 1.0F : 0.0F};
  int const rows = static_cast<int>(batch.inputs.size());
  int const width = config_.width;
  float* residual = work_->d_residual.data();
  float* narrow = work_->d_narrow.data();
  std::size_t const norm = slot(work_->blocks.size(), kNorm1Weight);
  std::size_t const head = norm + 2;

  cross_entropy_backward(work_->logits.data(), batch.targets, GptConfig::kVocabulary, options.scale);
  linear_backward_weights(gradients[head], nullptr, work_->logits.data(), work_->norm.data(), rows, width,
                          GptConfig::kVocabulary, gradients.keep);
  gradients.done(head);
  linear_backward_input(narrow, work_->logits.data(), parameter(head), rows, width, GptConfig::kVocabulary);
  layer_norm_backward_weights(gradients[norm], gradients[norm + 1], narrow, work_->output.data(), work_->mean.data(),
                              work_->rstd.data(), rows, width, gradients.keep);
  gradients.done(norm + 1);
  gradients.done(norm);
  std::fill_n(residual, static_cast<std::size_t>(rows) * static_cast<std::size_t>(width), 0.0F);
  layer_norm_backward_input(residual, narrow, work_->output.data(), work_->mean.data(), work_->rstd.data(),
                            parameter(norm), rows, width);
  for (std::size_t layer = work_->blocks.size(); layer-- > 0;) {
    mlp_backward(layer, rows, gradients);
    attention_block_backward(layer, rows, config_.seq, gradients);
  }
  position_embedding_backward(gradients[kPositions], residual, rows, config_.seq, config_.seq, width, gradients.keep);
  gradients.done(kPositions);
  token_embedding_backward(gradients[kTokens], residual, batch.inputs, width, GptConfig::kVocabulary, gradients.keep);
  gradients.done(kTokens);
}

void use_one_blas_thread() {
  openblas_set_num_threads(1);
}

}  // namespace train_gpt
