#pragma once

namespace weft::tool_output {

/// From here on the first SIGINT or SIGTERM (Ctrl-C, a batch system's end) is remembered, and does nothing else: a
/// program that asks is_interrupted() ends its search and tells what it has found. The second one ends the program.
void remember_interruption();

[[nodiscard]] bool is_interrupted() noexcept;

/// What shells say of a program that SIGINT or SIGTERM ended: 128 and the signal's number; `code` where none came.
[[nodiscard]] int interrupted_or(int code) noexcept;

}  // namespace weft::tool_output
