#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "weft/trace.hpp"

namespace weft {

/// One rank's spans as bytes for another process of this host (CBOR; times as steady_clock nanoseconds).
[[nodiscard]] std::vector<std::byte> encode_spans(std::span<Trace::Span const> spans);
/// Inverse of encode_spans(). @throws Error{system} when the bytes are not its output.
[[nodiscard]] std::vector<Trace::Span> decode_spans(std::span<std::byte const> bytes);

/// The file weft/trace.hpp describes; element r of `ranks` holds rank r's spans.
[[nodiscard]] std::string chrome_trace(std::span<std::vector<Trace::Span> const> ranks);

}  // namespace weft
