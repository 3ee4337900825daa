#include "core/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <memory>
#include <mutex>
#include <set>

namespace weft {
namespace {

struct Level {
  spdlog::level::level_enum spdlog_level;
  char const* name;
};

Level to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::trace: return {spdlog::level::trace, "trace"};
    case LogLevel::debug: return {spdlog::level::debug, "debug"};
    case LogLevel::info: return {spdlog::level::info, "info"};
    case LogLevel::warn: return {spdlog::level::warn, "warn"};
    case LogLevel::error: return {spdlog::level::err, "error"};
    case LogLevel::off: return {spdlog::level::off, "off"};
  }
  return {spdlog::level::err, "error"};
}

/// Not registered with spdlog, so that a program's own loggers are left alone.
spdlog::logger& logger() {
  static std::shared_ptr<spdlog::logger> const instance = [] {
    auto created = std::make_shared<spdlog::logger>("weft", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern("weft: %v");
    created->set_level(spdlog::level::warn);
    created->flush_on(spdlog::level::trace);
    return created;
  }();
  return *instance;
}

}  // namespace

void log(LogLevel level, std::string const& message) noexcept {
  try {
    Level const wanted = to_spdlog(level);
    if (logger().should_log(wanted.spdlog_level)) {
      logger().log(wanted.spdlog_level, "[" + std::string(wanted.name) + "] " + message);
    }
  } catch (...) {  // a log line that cannot be written has nowhere to be reported
  }
}

void log_once(LogLevel level, std::string const& message) noexcept {
  try {
    static std::mutex mutex;
    static std::set<std::string> said;
    std::scoped_lock const lock(mutex);
    if (said.insert(message).second) log(level, message);
  } catch (...) {  // as above
  }
}

void tell(std::string_view kind, std::string const& message) noexcept {
  try {
    // spdlog's highest level, at which every logger logs.
    logger().log(spdlog::level::off, "[" + std::string(kind) + "] " + message);
  } catch (...) {  // as above
  }
}

void set_log_level(LogLevel level) noexcept {
  try {
    logger().set_level(to_spdlog(level).spdlog_level);
  } catch (...) {
  }
}

std::optional<LogLevel> parse_log_level(std::string_view name) noexcept {
  constexpr std::array kLevels{LogLevel::trace, LogLevel::debug, LogLevel::info,
                               LogLevel::warn,  LogLevel::error, LogLevel::off};
  for (LogLevel const level : kLevels) {
    if (name == to_spdlog(level).name) return level;
  }
  return std::nullopt;
}

}  // namespace weft
