#pragma once

#include <fmt/format.h>

#include <string>

namespace weft {

/// What an abort, whose text is `message`, says on `rank` where it interrupts `call`: once, however many layers pass it
/// on.
[[nodiscard]] inline std::string interrupting(std::string const& message, int rank, std::string const& call) {
  auto const place = fmt::format("; rank {} was in ", rank);
  return message.find(place) == std::string::npos ? message + place + call : message;
}

}  // namespace weft
