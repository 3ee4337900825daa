#pragma once

#include <string>

namespace weft {

/// Log lines go to stderr as `weft: [level] rank: message` through spdlog; each takes effect process-wide only through the level.
/// Thread-safe, never throws.
enum class LogLevel { trace, debug, info, warn, error, off };
void log(LogLevel level, std::string const& message) noexcept;
void set_log_level(LogLevel level) noexcept;

}  // namespace weft
