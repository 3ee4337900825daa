#pragma once

#include <cstddef>

namespace train_gpt {

/// Shape of a byte-level GPT. The default has as many layers, and so tensors (148), as GPT-2 small (Radford et al.
/// 2019), at a twelfth of its parameters: what communication costs depends on how many tensors there are.
struct GptConfig {
  static constexpr int kVocabulary = 256;  ///< one token per byte value

  int layers = 12;
  int width = 256;  ///< a multiple of heads
  int heads = 8;
  int seq = 128;  ///< longest sequence

  [[nodiscard]] int head_width() const noexcept { return width / heads; }
  [[nodiscard]] bool operator==(GptConfig const&) const = default;
};

}  // namespace train_gpt
