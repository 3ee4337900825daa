#pragma once

#include <optional>

#include "weft/stream.hpp"

namespace weft {

/// A host stream on which ranks tell one another, through host memory, what concerns work on another stream. That is
/// the other stream itself or, where that is a GPU's, one of its own, so that no GPU waits. Not thread-safe.
class HostStream {
 public:
  /// The stream to use beside `stream`. `what` says in the error what is to be found out. @throws Error{unsupported}
  /// while `stream` is being captured: a graph's replays would not ask again.
  [[nodiscard]] Stream const& beside(Stream const& stream, char const* what);

 private:
  std::optional<Stream> own_;
};

}  // namespace weft
