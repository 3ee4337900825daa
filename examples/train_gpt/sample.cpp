#include "sample.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "random.hpp"

namespace train_gpt {
namespace {

std::uint8_t draw(std::span<float const> logits, Random& random) {
  constexpr double kTemperature = 0.8;
  double const top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  double total = 0.0;
  for (float const logit : logits) {
    total += std::exp((static_cast<double>(logit) - top) / kTemperature);
    weights.push_back(total);
  }
  auto const at = std::lower_bound(weights.begin(), weights.end(), random.uniform() * total);
  return static_cast<std::uint8_t>(std::min<std::ptrdiff_t>(at - weights.begin(), GptConfig::kVocabulary - 1));
}

}  // namespace

std::string generate(NextByte const& next_byte, Options const& options) {
  constexpr std::size_t kContext = 64;  // the whole context is computed anew per byte: half of it costs half as much
  std::size_t const context = std::min(kContext, static_cast<std::size_t>(options.model.seq));
  Random random(mix(options.seed) ^ 0x73616D70U);
  std::vector<std::uint8_t> text(options.prompt.begin(), options.prompt.end());
  for (int i = 0; i < options.sample; ++i) {
    std::size_t const used = std::min(context, text.size());
    text.push_back(draw(next_byte(std::span(text).last(used)), random));
  }
  return {text.begin(), text.end()};
}

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c != '\n' && (c < ' ' || c > '~'); }, '?');
  return text;
}

}  // namespace train_gpt
