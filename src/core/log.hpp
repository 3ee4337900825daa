#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

/// Log lines go to stderr as `weft: [level] message` through spdlog; callers that know their rank put it into the
/// message. Thread-safe, never throws. The only state, one per process, is the level and what log_once() has said.
enum class LogLevel { trace, debug, info, warn, error, off };
void log(LogLevel level, std::string const& message) noexcept;
/// The same, but only the first time that this process logs this message.
void log_once(LogLevel level, std::string const& message) noexcept;
/// Writes a line that the user has asked for, `weft: [kind] message`, whatever the level is.
void tell(std::string_view kind, std::string const& message) noexcept;
void set_log_level(LogLevel level) noexcept;
/// The level of a name (see Config::log_level); empty for any other name.
[[nodiscard]] std::optional<LogLevel> parse_log_level(std::string_view name) noexcept;

}  // namespace weft
