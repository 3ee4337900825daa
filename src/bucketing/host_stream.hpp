#pragma once

#include <optional>

#include "weft/stream.hpp"

namespace weft {

/// Where ranks tell one another, through host memory, what concerns work on a stream: on that stream, or where it is a
/// GPU's on one of its own, so that no GPU waits. Not thread-safe.
class HostStream {
 public:
  /// The stream for what concerns `stream`. `what` is told, for the error. @throws Error{unsupported} while `stream` is
  /// captured: a graph's replays would not tell it again.
  [[nodiscard]] Stream const& beside(Stream const& stream, char const* what);

 private:
  std::optional<Stream> own_;
};

}  // namespace weft
