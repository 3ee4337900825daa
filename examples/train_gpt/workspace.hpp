#pragma once

#include <cstddef>
#include <vector>

#include <weft/memory.hpp>

#include "gpt_config.hpp"

namespace train_gpt {

/// What one block keeps for backward; sizes in floats per token row unless said otherwise.
struct BlockActivations {
  std::vector<float> norm1;          ///< width
  std::vector<float> mean1, rstd1;   ///< 1
  std::vector<float> qkv;            ///< 3·width
  std::vector<float> probabilities;  ///< batch·heads·seq·seq in all
  std::vector<float> attended;       ///< width
  std::vector<float> middle;         ///< width: the residual stream between attention and MLP
  std::vector<float> norm2;          ///< width
  std::vector<float> mean2, rstd2;   ///< 1
  std::vector<float> hidden;         ///< 4·width, before GELU
  std::vector<float> activated;      ///< 4·width, after GELU
};

class Workspace {
 public:
  /// With `recompute` only the residual stream before each block is kept; the rest is one block's, computed again
  /// before its backward (Chen, Xu, Zhang, Guestrin: Training Deep Nets with Sublinear Memory Cost, 2016).
  Workspace(GptConfig const& config, int max_batch, bool recompute)
      : blocks_(recompute ? 1 : static_cast<std::size_t>(config.layers)) {
    auto const rows = static_cast<std::size_t>(max_batch) * static_cast<std::size_t>(config.seq);
    auto const width = static_cast<std::size_t>(config.width);
    for (BlockActivations& block : blocks_) {
      for (auto* matrix : {&block.norm1, &block.attended, &block.middle, &block.norm2}) make(*matrix, rows * width);
      for (auto* column : {&block.mean1, &block.rstd1, &block.mean2, &block.rstd2}) make(*column, rows);
      make(block.qkv, rows * 3 * width);
      make(block.probabilities, rows * static_cast<std::size_t>(config.heads) * static_cast<std::size_t>(config.seq));
      make(block.hidden, rows * 4 * width);
      make(block.activated, rows * 4 * width);
    }
    inputs.resize(static_cast<std::size_t>(config.layers));
    for (std::vector<float>& input : inputs) make(input, rows * width);
    for (auto* matrix : {&output, &norm, &d_residual, &d_narrow}) make(*matrix, rows * width);
    make(mean, rows);
    make(rstd, rows);
    make(logits, rows * static_cast<std::size_t>(GptConfig::kVocabulary));
    make(d_wide, rows * 4 * width);
    make(d_scores, static_cast<std::size_t>(config.seq) * static_cast<std::size_t>(config.seq));
  }

  [[nodiscard]] bool recomputes() const noexcept { return blocks_.size() < inputs.size(); }
  [[nodiscard]] BlockActivations& block(std::size_t layer) { return blocks_[recomputes() ? 0 : layer]; }

  std::vector<std::vector<float>> inputs;  ///< the residual stream before each block
  std::vector<float> output;               ///< and after the last
  std::vector<float> norm, mean, rstd, logits;
  std::vector<float> d_residual;  ///< gradient of the residual stream, walking backwards
  std::vector<float> d_narrow;    ///< width per row
  std::vector<float> d_wide;      ///< 4·width per row
  std::vector<float> d_scores;    ///< seq·seq

 private:
  void make(std::vector<float>& array, std::size_t count) {
    charge_.set(charged_ += static_cast<std::ptrdiff_t>(count * sizeof(float)));
    array.resize(count);
  }

  weft::MemoryCharge charge_{weft::MemoryKind::activations, 0};
  std::ptrdiff_t charged_ = 0;
  std::vector<BlockActivations> blocks_;
};

}  // namespace train_gpt
