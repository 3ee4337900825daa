#pragma once

#include <string>

namespace weft {

/// The system's words for `error`, a value of errno; where one of the process's limits was reached, or may have been,
/// also how to raise it: "Too many open files; allow more (ulimit -n)".
[[nodiscard]] std::string describe_errno(int error);

}  // namespace weft
