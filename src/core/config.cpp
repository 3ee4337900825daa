#include "weft/config.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "core/host_identity.hpp"
#include "core/log.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// A number and what follows it, e.g. {4, "M"}.
template <typename Number>
struct Quantity {
  Number number{};
  std::string_view unit;
};

template <typename Number>
std::optional<Quantity<Number>> split_quantity(std::string_view text) {
  Quantity<Number> quantity;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), quantity.number);
  if (error != std::errc{}) return std::nullopt;
  quantity.unit = text.substr(static_cast<std::size_t>(end - text.data()));
  return quantity;
}

bool parse_timeout(Config& config, std::string const& value) {
  auto const duration = parse_duration(value);
  // The upper limit keeps now + timeout representable.
  if (!duration || *duration < std::chrono::milliseconds(1) || *duration > std::chrono::hours(8760)) return false;
  config.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(*duration);
  return true;
}

bool parse_level(Config& config, std::string const& value) {
  if (!parse_log_level(value)) return false;
  config.log_level = value;
  return true;
}

bool parse_staging(Config& config, std::string const& value) {
  constexpr std::size_t kLeast = std::size_t{64} << 10;
  auto const bytes = parse_bytes(value);
  if (!bytes || *bytes < kLeast) return false;
  config.staging_bytes = bytes;
  return true;
}

bool parse_spin(Config& config, std::string const& value) {
  auto const duration = parse_duration(value);
  if (!duration || *duration > std::chrono::seconds(1)) return false;
  config.spin = std::chrono::duration_cast<std::chrono::microseconds>(*duration);
  return true;
}

bool parse_bind(Config& config, std::string const& value) {
  if (value != "0" && value != "1") return false;
  config.bind = value == "1";
  return true;
}

bool parse_explain(Config& config, std::string const& value) {
  if (value != "0" && value != "1") return false;
  config.explain = value == "1";
  return true;
}

bool parse_host_id(Config& config, std::string const& value) {
  if (value.empty() || value.size() > kMostHostIdCharacters) return false;
  config.host_id = value;
  return true;
}

bool parse_backend(Config& config, std::string const& value) {
  for (auto const kind : {BackendKind::shm, BackendKind::mpi, BackendKind::hierarchical}) {
    if (value != to_string(kind)) continue;
    config.backend = kind;
    return true;
  }
  return false;
}

bool parse_flight_recorder(Config& config, std::string const& value) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  auto const calls = split_quantity<std::size_t>(value);
  if (!calls || !calls->unit.empty() || calls->number > kMost) return false;
  config.flight_recorder = calls->number;
  return true;
}

bool parse_flight_directory(Config& config, std::string const& value) {
  if (value.empty()) return false;
  config.flight_directory = value;
  return true;
}

bool parse_mpi_stats(Config& config, std::string const& value) {
  if (value != "0" && value != "1") return false;
  config.mpi_stats = value == "1";
  return true;
}

struct Variable {
  std::string_view name;
  std::string_view allowed;  ///< for messages
  bool (*set)(Config&, std::string const&);
};

constexpr std::array kVariables{
    Variable{"WEFT_TIMEOUT", "a duration from 1ms to a year such as 300s or 500ms", parse_timeout},
    Variable{"WEFT_LOG_LEVEL", "one of trace, debug, info, warn, error, off", parse_level},
    Variable{"WEFT_STAGING_BYTES", "a size of at least 64K such as 4M or 1048576", parse_staging},
    Variable{"WEFT_SPIN", "a duration of at most 1s such as 50us or 0us", parse_spin},
    Variable{"WEFT_BIND", "0 or 1", parse_bind},
    Variable{"WEFT_EXPLAIN", "0 or 1", parse_explain},
    Variable{"WEFT_MPI_STATS", "0 or 1", parse_mpi_stats},
    Variable{"WEFT_HOST_ID", "a name of 1 to 64 characters", parse_host_id},
    Variable{"WEFT_BACKEND", "shm, mpi or hierarchical", parse_backend},
    Variable{"WEFT_FLIGHT_RECORDER", "a number of calls from 0 to 1048576", parse_flight_recorder},
    Variable{"WEFT_FLIGHT_DIR", "the name of a folder", parse_flight_directory},
};

/// Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t const substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

/// An abbreviated or prolonged name is nearer than any misspelt one.
std::size_t difference(std::string_view known, std::string_view name) {
  return known.starts_with(name) || name.starts_with(known) ? 0 : edit_distance(known, name);
}

std::string_view nearest_variable(std::string_view name) {
  return std::min_element(kVariables.begin(), kVariables.end(),
                          [name](Variable const& a, Variable const& b) {
                            return difference(a.name, name) < difference(b.name, name);
                          })
      ->name;
}

/// False when there is no such variable.
bool apply(Config& config, std::string_view name, std::string const& value) {
  auto const* const known =
      std::find_if(kVariables.begin(), kVariables.end(), [name](Variable const& v) { return v.name == name; });
  if (known == kVariables.end()) return false;
  if (!known->set(config, value)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}={}: expected {}", name, value, known->allowed));
  }
  return true;
}

void warn_unknown(std::vector<std::string_view> const& names) {
  for (std::string_view const name : names) {
    log(LogLevel::warn, fmt::format("unknown variable {}: did you mean {}?", name, nearest_variable(name)));
  }
}

}  // namespace

std::string_view to_string(BackendKind kind) noexcept {
  switch (kind) {
    case BackendKind::shm: return "shm";
    case BackendKind::mpi: return "mpi";
    case BackendKind::hierarchical: return "hierarchical";
  }
  return "unknown backend";
}

std::optional<std::size_t> parse_bytes(std::string const& text) {
  auto const quantity = split_quantity<std::size_t>(text);
  if (!quantity || quantity->unit.size() > 1) return std::nullopt;
  unsigned shift = 0;
  if (!quantity->unit.empty()) {
    switch (quantity->unit[0]) {
      case 'k':
      case 'K': shift = 10; break;
      case 'm':
      case 'M': shift = 20; break;
      case 'g':
      case 'G': shift = 30; break;
      default: return std::nullopt;
    }
  }
  if (quantity->number > (std::numeric_limits<std::size_t>::max() >> shift)) return std::nullopt;
  return quantity->number << shift;
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string const& text) {
  auto const quantity = split_quantity<double>(text);
  if (!quantity) return std::nullopt;
  double nanoseconds_per_unit = 0;
  if (quantity->unit == "ns") nanoseconds_per_unit = 1;
  if (quantity->unit == "us") nanoseconds_per_unit = 1e3;
  if (quantity->unit == "ms") nanoseconds_per_unit = 1e6;
  if (quantity->unit == "s" || quantity->unit.empty()) nanoseconds_per_unit = 1e9;
  double const nanoseconds = quantity->number * nanoseconds_per_unit;
  // The negated comparison also rejects NaN; 9e18 ns is 285 years, the most 64 bits hold.
  if (nanoseconds_per_unit == 0 || !(nanoseconds >= 0 && nanoseconds < 9e18)) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds + 0.5));
}

Config Config::from_environment() {
  return from_environment(environ);
}

Config Config::from_environment(char const* const* environment) {
  Config config;
  std::vector<std::string_view> unknown;
  for (; *environment != nullptr; ++environment) {
    std::string_view const entry(*environment);
    std::size_t const equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view const name = entry.substr(0, equals);
    if (!name.starts_with("WEFT_") || name.starts_with("WEFT_TEST_") || name.starts_with("WEFT_DEMO_")) continue;
    if (!apply(config, name, std::string(entry.substr(equals + 1)))) unknown.push_back(name);
  }
  if (config.log_level != "error" && config.log_level != "off") warn_unknown(unknown);
  return config;
}

}  // namespace weft
