#pragma once

#include <cstddef>

namespace train_gpt {

/// Shape of a byte-level GPT.
struct GptConfig {
  static constexpr int kVocabulary = 256;  ///< one token per byte value

  int layers = 6;
  int width = 384;  ///< a multiple of heads
  int heads = 6;
  int seq = 128;  ///< longest sequence

  [[nodiscard]] int head_width() const noexcept { return width / heads; }
  [[nodiscard]] bool operator==(GptConfig const&) const = default;
};

}  // namespace train_gpt
