#pragma once

#include <iosfwd>
#include <string>

namespace weft {

/// The deepest nesting of JSON that is read.
inline constexpr int kDeepestJson = 100;

/// Reads all of a stream, for a JSON parser. The limit is there because JSON is copied and written by recursion: a file
/// can nest it so deep that no stack is large enough.
/// @throws Error{invalid_argument} naming `source` where it is nested deeper than kDeepestJson.
[[nodiscard]] std::string shallow_text(std::istream& in, std::string const& source);

}  // namespace weft
