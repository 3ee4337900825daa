#pragma once

#include <string>

namespace weft {

/// The system's words for `error`, a value of errno. Where a limit of the process was reached, or may have been, they
/// also say how to raise it: "Too many open files; allow more (ulimit -n)".
[[nodiscard]] std::string describe_errno(int error);

}  // namespace weft
