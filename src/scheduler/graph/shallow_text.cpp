#include "scheduler/graph/shallow_text.hpp"

#include <fmt/format.h>

#include <istream>
#include <iterator>

#include "weft/error.hpp"

namespace weft {

std::string shallow_text(std::istream& in, std::string const& source) {
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char const c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      if (++depth > kDeepestJson) {
        throw Error(ErrorCode::invalid_argument, fmt::format("{}: JSON nested deeper than {}", source, kDeepestJson));
      }
    } else if (!quoted && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return text;
}

}  // namespace weft
