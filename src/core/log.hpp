#pragma once

#include <string>

namespace weft {

/// Log lines go to stderr as `weft: [level] message` through spdlog; callers that know their rank put it into the
/// message. Thread-safe, never throws. The level is the only state, and it is the process's.
enum class LogLevel { trace, debug, info, warn, error, off };
void log(LogLevel level, std::string const& message) noexcept;
void set_log_level(LogLevel level) noexcept;

}  // namespace weft
