#pragma once

#include <optional>
#include <span>
#include <vector>

#include "weft/buffer.hpp"
#include "weft/stream.hpp"

namespace weft {

// Read f32, bf16 or f16 memory as f32, and write it, wherever it is. A GPU's memory is accessed in the order of
// `stream`, which both wait for; for host memory there is no stream.

[[nodiscard]] std::vector<float> read_values(BufferView const& from, std::optional<Stream> const& stream);
/// Rounds to nearest even.
void write_values(std::span<float const> values, BufferView const& to, std::optional<Stream> const& stream);

}  // namespace weft
