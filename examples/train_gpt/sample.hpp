#pragma once

#include <cstdint>
#include <string>

#include "gpt_model.hpp"

namespace train_gpt {

/// `prompt` and `bytes` more, drawn from the model at temperature 0.8; the same seed and weights draw the same text.
[[nodiscard]] std::string generate(GptModel& model, Tensors& tensors, std::string const& prompt, int bytes,
                                   std::uint64_t seed);

/// Control bytes and bytes that are no ASCII become '?', so that any sample can be printed.
[[nodiscard]] std::string printable(std::string text);

}  // namespace train_gpt
