#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "options.hpp"

namespace train_gpt {

/// A model's scores of the byte that follows a text.
using NextByte = std::function<std::span<float const>(std::span<std::uint8_t const> text)>;

/// options.prompt and options.sample bytes more, drawn from the model at temperature 0.8; the same seed and weights
/// draw the same text.
[[nodiscard]] std::string generate(NextByte const& next_byte, Options const& options);

/// Control bytes and bytes that are no ASCII become '?', so that any sample can be printed.
[[nodiscard]] std::string printable(std::string text);

}  // namespace train_gpt
