#pragma once

namespace weft::tool_output {

/// From now on the first SIGINT or SIGTERM (Ctrl-C, the end of a batch job) is only remembered: a program that asks
/// is_interrupted() ends its search and reports what it has found. The second signal ends the program.
void remember_interruption();

[[nodiscard]] bool is_interrupted() noexcept;

/// The exit code that shells give a program ended by SIGINT or SIGTERM: 128 + the signal's number; `code` if no signal
/// came.
[[nodiscard]] int interrupted_or(int code) noexcept;

}  // namespace weft::tool_output
