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
    inputs.resize(static_cast<std::size_t>(config.layers));
    std::ptrdiff_t bytes = 0;  // what does not fit is refused before any of it is there
    each_array(config, max_batch, [&](std::vector<float>&, std::size_t count) {
      bytes += static_cast<std::ptrdiff_t>(count * sizeof(float));
    });
    charge_.set(bytes);
    each_array(config, max_batch, [](std::vector<float>& array, std::size_t count) { array.resize(count); });
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
  template <typename Visit>
  void each_array(GptConfig const& config, int max_batch, Visit const& visit) {
    auto const rows = static_cast<std::size_t>(max_batch) * static_cast<std::size_t>(config.seq);
    auto const width = static_cast<std::size_t>(config.width);
    for (BlockActivations& block : blocks_) {
      for (auto* matrix : {&block.norm1, &block.attended, &block.middle, &block.norm2}) visit(*matrix, rows * width);
      for (auto* column : {&block.mean1, &block.rstd1, &block.mean2, &block.rstd2}) visit(*column, rows);
      visit(block.qkv, rows * 3 * width);
      visit(block.probabilities, rows * static_cast<std::size_t>(config.heads) * static_cast<std::size_t>(config.seq));
      visit(block.hidden, rows * 4 * width);
      visit(block.activated, rows * 4 * width);
    }
    for (std::vector<float>& input : inputs) visit(input, rows * width);
    for (auto* matrix : {&output, &norm, &d_residual, &d_narrow}) visit(*matrix, rows * width);
    visit(mean, rows);
    visit(rstd, rows);
    visit(logits, rows * static_cast<std::size_t>(GptConfig::kVocabulary));
    visit(d_wide, rows * 4 * width);
    visit(d_scores, static_cast<std::size_t>(config.seq) * static_cast<std::size_t>(config.seq));
  }

  weft::MemoryCharge charge_{weft::MemoryKind::activations, 0};
  std::vector<BlockActivations> blocks_;
};

}  // namespace train_gpt
