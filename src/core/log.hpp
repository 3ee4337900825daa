#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

/// Log lines go to stderr as `weft: [level] message` through spdlog; callers that know their rank put it into the
/// message. Thread-safe, never throws. The level, and what was said by log_once(), are the only state, and the
/// process's.
enum class LogLevel { trace, debug, info, warn, error, off };
void log(LogLevel level, std::string const& message) noexcept;
/// The same, but only the first time in this process that this is to be said.
void log_once(LogLevel level, std::string const& message) noexcept;
/// A line the user has asked for, `weft: [kind] message`, whatever the level is.
void tell(std::string_view kind, std::string const& message) noexcept;
void set_log_level(LogLevel level) noexcept;
/// Of Config::log_level's names; empty for any other.
[[nodiscard]] std::optional<LogLevel> parse_log_level(std::string_view name) noexcept;

}  // namespace weft
