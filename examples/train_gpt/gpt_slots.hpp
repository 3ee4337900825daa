#pragma once

#include <cstddef>

namespace train_gpt {

// Which of GptParameters' tensors and units are what.

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

inline constexpr std::size_t kTokens = 0;
inline constexpr std::size_t kPositions = 1;
inline constexpr std::size_t kFirstBlock = 2;

constexpr std::size_t slot(std::size_t layer, Slot which) {
  return kFirstBlock + layer * kSlots + which;
}

constexpr std::size_t unit_of_layer(std::size_t layer) {
  return 1 + layer;  // the embedding is the first
}

}  // namespace train_gpt
