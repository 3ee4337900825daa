#include <fmt/format.h>

#include <array>

#include "weft/error.hpp"
#include "weft/transformer_graph.hpp"

namespace weft {

namespace {

/// Llama 2 and 3: Touvron et al., arXiv:2307.09288; Llama team, arXiv:2407.21783.
TransformerShape llama(char const* name, int layers, std::int64_t width, std::int64_t heads, std::int64_t kv_heads,
                       std::int64_t ffn_width, std::int64_t vocabulary, std::int64_t sequence) {
  return {.name = name,
          .layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = kv_heads,
          .ffn_width = ffn_width,
          .vocabulary = vocabulary,
          .sequence = sequence};
}

/// GPT-2: Radford et al., 2019.
TransformerShape gpt2(char const* name, int layers, std::int64_t width, std::int64_t heads) {
  return {.name = name,
          .layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = heads,
          .ffn_width = 4 * width,
          .gated_ffn = false,
          .biases = true,
          .vocabulary = 50'257,
          .positions = 1024,
          .tied_embeddings = true,
          .sequence = 1024};
}

std::array<TransformerShape, 8> presets() {
  return {llama("llama2-7b", 32, 4096, 32, 32, 11'008, 32'000, 4096),
          llama("llama3-8b", 32, 4096, 32, 8, 14'336, 128'256, 8192),
          llama("llama3-70b", 80, 8192, 64, 8, 28'672, 128'256, 8192),
          llama("llama3-405b", 126, 16'384, 128, 8, 53'248, 128'256, 8192),
          gpt2("gpt2-small", 12, 768, 12),
          gpt2("gpt2-medium", 24, 1024, 16),
          gpt2("gpt2-large", 36, 1280, 20),
          gpt2("gpt2-xl", 48, 1600, 25)};
}

}  // namespace

std::vector<std::string> transformer_preset_names() {
  std::vector<std::string> names;
  for (auto& shape : presets()) names.push_back(std::move(shape.name));
  return names;
}

TransformerShape transformer_preset(std::string_view name) {
  for (auto& shape : presets()) {
    if (shape.name == name) return std::move(shape);
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("no Transformer is named \"{}\": there are {}", name,
                                                       fmt::join(transformer_preset_names(), ", ")));
}

}  // namespace weft
