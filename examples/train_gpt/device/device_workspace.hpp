#pragma once

#include <cstddef>
#include <vector>

#include <weft/cuda.hpp>
#include <weft/cuda_layers.hpp>
#include <weft/memory.hpp>

#include "gpt_config.hpp"

namespace train_gpt {

/// BlockActivations (workspace.hpp) on a GPU; of the type that is trained but for mean and rstd, which are f32.
struct DeviceBlock {
  weft::Buffer norm1, mean1, rstd1, qkv, probabilities, attended, middle, norm2, mean2, rstd2;
  weft::Buffer hidden;  ///< 4·width, before its bias and GELU
  weft::Buffer activated;
};

/// As Workspace, on a GPU.
class DeviceWorkspace {
 public:
  DeviceWorkspace(GptConfig const& config, int max_batch, bool recompute, weft::DataType type, int device)
      : rows_(static_cast<std::size_t>(max_batch) * static_cast<std::size_t>(config.seq)), device_(device) {
    weft::MemoryScope const scope(weft::MemoryKind::activations);
    auto const width = static_cast<std::size_t>(config.width);
    auto const layers = static_cast<std::size_t>(config.layers);
    std::size_t const squares = rows_ * static_cast<std::size_t>(config.heads) * static_cast<std::size_t>(config.seq);
    for (std::size_t i = 0; i < (recompute ? 1 : layers); ++i) blocks_.push_back(make_block(width, squares, type));
    for (std::size_t i = 0; i < layers; ++i) inputs.push_back(make(rows_ * width, type));
    output = make(rows_ * width, type);
    norm = make(rows_ * width, type);
    mean = make(rows_, weft::DataType::f32);
    rstd = make(rows_, weft::DataType::f32);
    logits = make(rows_ * GptConfig::kVocabulary, weft::DataType::f32);
    if (type != weft::DataType::f32) d_logits = make(rows_ * GptConfig::kVocabulary, type);
    loss_scratch = make(weft::cuda::Layers::cross_entropy_scratch(rows_), weft::DataType::f32);
    scores = make(squares, weft::DataType::f32);
    d_residual = make(rows_ * width, type);
    d_narrow = make(rows_ * width, type);
    d_wide = make(rows_ * 4 * width, type);
  }

  [[nodiscard]] bool recomputes() const noexcept { return blocks_.size() < inputs.size(); }
  [[nodiscard]] DeviceBlock& block(std::size_t layer) { return blocks_[recomputes() ? 0 : layer]; }

  std::vector<weft::Buffer> inputs;  ///< the residual stream before each block
  weft::Buffer output;               ///< and after the last
  weft::Buffer norm, mean, rstd;
  weft::Buffer logits;    ///< f32
  weft::Buffer d_logits;  ///< empty where they are in the logits' place
  weft::Buffer loss_scratch;
  weft::Buffer scores;  ///< f32, of all heads of a batch
  weft::Buffer d_residual, d_narrow, d_wide;

 private:
  [[nodiscard]] weft::Buffer make(std::size_t count, weft::DataType type) const {
    return weft::cuda::allocate(count, type, device_);
  }
  [[nodiscard]] DeviceBlock make_block(std::size_t width, std::size_t squares, weft::DataType type) const {
    DeviceBlock block;
    for (auto* matrix : {&block.norm1, &block.attended, &block.middle, &block.norm2})
      *matrix = make(rows_ * width, type);
    for (auto* column : {&block.mean1, &block.rstd1, &block.mean2, &block.rstd2}) {
      *column = make(rows_, weft::DataType::f32);
    }
    block.qkv = make(rows_ * 3 * width, type);
    block.probabilities = make(squares, type);
    block.hidden = make(rows_ * 4 * width, type);
    block.activated = make(rows_ * 4 * width, type);
    return block;
  }

  std::size_t rows_;
  int device_;
  std::vector<DeviceBlock> blocks_;
};

}  // namespace train_gpt
