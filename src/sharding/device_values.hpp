#pragma once

#include <optional>
#include <span>
#include <vector>

#include "weft/buffer.hpp"
#include "weft/stream.hpp"

namespace weft {

// The values of f32, bf16 and f16 memory as f32, wherever it is. Of a GPU's memory in the order of `stream`, which they
// wait for; on the host there is none.

[[nodiscard]] std::vector<float> read_values(BufferView const& from, std::optional<Stream> const& stream);
/// Rounds to nearest even.
void write_values(std::span<float const> values, BufferView const& to, std::optional<Stream> const& stream);

}  // namespace weft
