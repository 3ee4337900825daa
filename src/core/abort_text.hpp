#pragma once

#include <fmt/format.h>

#include <string>

namespace weft {

/// The text of an abort (`message`) as `rank` reports it where it interrupts `call`. The place is added only once,
/// however many layers pass the abort on.
[[nodiscard]] inline std::string interrupting(std::string const& message, int rank, std::string const& call) {
  auto const place = fmt::format("; rank {} was in ", rank);
  return message.find(place) == std::string::npos ? message + place + call : message;
}

}  // namespace weft
