#include "weft/config.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
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

bool read_timeout(Config& config, std::string const& value) {
  auto const duration = parse_duration(value);
  if (duration) config.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(*duration);
  return duration.has_value();
}

bool read_level(Config& config, std::string const& value) {
  config.log_level = value;
  return true;
}

bool read_staging(Config& config, std::string const& value) {
  config.staging_bytes = parse_bytes(value);
  return config.staging_bytes.has_value();
}

bool read_torch_heap(Config& config, std::string const& value) {
  if (value.empty() || value == "0") return true;  // none
  config.torch_heap = parse_bytes(value);
  return config.torch_heap.has_value();
}

bool read_spin(Config& config, std::string const& value) {
  auto const duration = parse_duration(value);
  if (duration) config.spin = std::chrono::ceil<std::chrono::microseconds>(*duration);
  return duration.has_value();
}

template <bool Config::*on>
bool read_switch(Config& config, std::string const& value) {
  config.*on = value == "1";
  return value == "0" || value == "1";
}

bool read_host_id(Config& config, std::string const& value) {
  config.host_id = value;
  return true;
}

bool read_backend(Config& config, std::string const& value) {
  for (auto const kind : {BackendKind::shm, BackendKind::mpi, BackendKind::hierarchical, BackendKind::ucx,
                          BackendKind::hierarchical_ucx}) {
    if (value == to_string(kind)) config.backend = kind;
  }
  return config.backend.has_value();
}

bool read_net_devices(Config& config, std::string const& value) {
  config.net_devices = value;
  return true;
}

bool read_wire(Config& config, std::string const& value) {
  for (auto const format : {WireFormat::f32, WireFormat::bf16, WireFormat::fp8}) {
    if (value != to_string(format)) continue;
    config.wire = format;
    return true;
  }
  return false;
}

bool read_device_backend(Config& config, std::string const& value) {
  for (auto const kind : {DeviceBackendKind::automatic, DeviceBackendKind::nccl, DeviceBackendKind::staged,
                          DeviceBackendKind::hierarchical}) {
    if (value != to_string(kind)) continue;
    config.device_backend = kind;
    return true;
  }
  return false;
}

bool read_flight_recorder(Config& config, std::string const& value) {
  auto const calls = split_quantity<std::size_t>(value);
  if (!calls || !calls->unit.empty()) return false;
  config.flight_recorder = calls->number;
  return true;
}

template <std::optional<std::string> Config::*cache>
bool read_cache(Config& config, std::string const& value) {
  (config.*cache).reset();
  if (!value.empty() && value != "0") config.*cache = value;
  return true;
}

bool read_flight_directory(Config& config, std::string const& value) {
  config.flight_directory = value;
  return true;
}

bool read_nccl_library(Config& config, std::string const& value) {
  config.nccl_library = value;
  return true;
}

/// A value that is not allowed, as text; empty when it is allowed.
using Wrong = std::optional<std::string>;

Wrong wrong_if(bool wrong, std::string value) {
  return wrong ? Wrong(std::move(value)) : std::nullopt;
}

Wrong wrong_timeout(Config const& config) {
  return wrong_if(!is_timeout(config.timeout), fmt::format("{}ms", config.timeout.count()));
}

Wrong wrong_level(Config const& config) {
  return wrong_if(!parse_log_level(config.log_level), fmt::format("\"{}\"", config.log_level));
}

Wrong wrong_staging(Config const& config) {
  constexpr std::size_t kLeast = std::size_t{64} << 10;
  constexpr std::size_t kMost = std::size_t{1} << 30;
  auto const bytes = config.staging_bytes.value_or(kLeast);
  return wrong_if(bytes < kLeast || bytes > kMost, fmt::format("{}", bytes));
}

Wrong wrong_torch_heap(Config const& config) {
  constexpr std::size_t kLeast = std::size_t{1} << 20;
  return wrong_if(config.torch_heap.value_or(kLeast) < kLeast, fmt::format("{}", config.torch_heap.value_or(0)));
}

Wrong wrong_spin(Config const& config) {
  auto const spin = config.spin.value_or(std::chrono::microseconds(0));
  return wrong_if(spin.count() < 0 || spin > std::chrono::seconds(1), fmt::format("{}us", spin.count()));
}

Wrong wrong_host_id(Config const& config) {
  std::string const host = config.host_id.value_or("");
  bool const good = !config.host_id || (!host.empty() && host.size() <= kMostHostIdCharacters);
  return wrong_if(!good, fmt::format("\"{}\"", host));
}

Wrong wrong_backend(Config const& config) {
  auto const number = static_cast<int>(config.backend.value_or(BackendKind::shm));
  return wrong_if(number < 0 || number > static_cast<int>(BackendKind::hierarchical_ucx), fmt::format("{}", number));
}

Wrong wrong_net_devices(Config const& config) {
  return wrong_if(config.net_devices && config.net_devices->empty(), "\"\"");
}

Wrong wrong_wire(Config const& config) {
  auto const number = static_cast<int>(config.wire);
  return wrong_if(number < 0 || number > static_cast<int>(WireFormat::fp8), fmt::format("{}", number));
}

Wrong wrong_device_backend(Config const& config) {
  auto const number = static_cast<int>(config.device_backend);
  return wrong_if(number < 0 || number > static_cast<int>(DeviceBackendKind::hierarchical), fmt::format("{}", number));
}

Wrong wrong_flight_recorder(Config const& config) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  return wrong_if(config.flight_recorder > kMost, fmt::format("{}", config.flight_recorder));
}

Wrong wrong_flight_directory(Config const& config) {
  return wrong_if(config.flight_directory && config.flight_directory->empty(), "\"\"");
}

Wrong wrong_nccl_library(Config const& config) {
  return wrong_if(config.nccl_library && config.nccl_library->empty(), "\"\"");
}

Wrong never(Config const& /*config*/) {
  return std::nullopt;
}

/// The rules of one setting, wherever its value comes from.
struct Setting {
  std::string_view variable;
  std::string_view member;
  std::string_view allowed;                   ///< for messages
  bool (*read)(Config&, std::string const&);  ///< sets the member; false when the text means nothing
  Wrong (*wrong)(Config const&);
};

constexpr std::array kSettings{
    Setting{"WEFT_TIMEOUT", "timeout", "a duration from 1ms to a year such as 300s or 500ms", read_timeout,
            wrong_timeout},
    Setting{"WEFT_LOG_LEVEL", "log_level", "one of trace, debug, info, warn, error, off", read_level, wrong_level},
    Setting{"WEFT_STAGING_BYTES", "staging_bytes", "a size from 64K to 1G such as 4M or 1048576", read_staging,
            wrong_staging},
    Setting{"WEFT_SPIN", "spin", "a duration of at most 1s such as 50us or 0us", read_spin, wrong_spin},
    Setting{"WEFT_BIND", "bind", "0 or 1", read_switch<&Config::bind>, never},
    Setting{"WEFT_READ_PEERS", "read_peers", "0 or 1", read_switch<&Config::read_peers>, never},
    Setting{"WEFT_EXPLAIN", "explain", "0 or 1", read_switch<&Config::explain>, never},
    Setting{"WEFT_MPI_STATS", "mpi_stats", "0 or 1", read_switch<&Config::mpi_stats>, never},
    Setting{"WEFT_HOST_ID", "host_id", "a name of 1 to 64 characters", read_host_id, wrong_host_id},
    Setting{"WEFT_BACKEND", "backend", "shm, mpi, hierarchical, ucx or hierarchical_ucx", read_backend, wrong_backend},
    Setting{"WEFT_NET_DEVICES", "net_devices", "names of network devices such as eth0 or mlx5_0:1,eth0",
            read_net_devices, wrong_net_devices},
    Setting{"WEFT_RMA", "rma", "0 or 1", read_switch<&Config::rma>, never},
    Setting{"WEFT_WIRE", "wire", "f32, bf16 or fp8", read_wire, wrong_wire},
    Setting{"WEFT_DEVICE_BACKEND", "device_backend", "auto, nccl, staged or hierarchical", read_device_backend,
            wrong_device_backend},
    Setting{"WEFT_FLIGHT_RECORDER", "flight_recorder", "a number of calls from 0 to 1048576", read_flight_recorder,
            wrong_flight_recorder},
    Setting{"WEFT_TUNING_CACHE", "tuning_cache", "the name of a file, or 0", read_cache<&Config::tuning_cache>, never},
    Setting{"WEFT_AUTOTUNE_CACHE", "autotune_cache", "the name of a file, or 0", read_cache<&Config::autotune_cache>,
            never},
    Setting{"WEFT_FLIGHT_DIR", "flight_directory", "the name of a folder", read_flight_directory,
            wrong_flight_directory},
    Setting{"WEFT_NCCL_LIBRARY", "nccl_library", "the path of a libnccl.so", read_nccl_library, wrong_nccl_library},
    Setting{"WEFT_TORCH_HEAP", "torch_heap", "a size of at least 1M such as 4G, or 0", read_torch_heap,
            wrong_torch_heap},
    Setting{"WEFT_REPORT", "report", "0 or 1", read_switch<&Config::report>, never},
};

/// WEFT_ variables that others read: the tests, the demo, the scripts, the build and PyTorch's wrappers. An ending _
/// stands for any rest.
constexpr std::array<std::string_view, 10> kOthers{"WEFT_TEST_",    "WEFT_DEMO_",   "WEFT_PERF_",  "WEFT_WITH_",
                                                   "WEFT_BUILD_",   "WEFT_JOBS",    "WEFT_CCACHE", "WEFT_WERROR",
                                                   "WEFT_SANITIZE", "WEFT_AUTOTUNE"};

bool belongs_to_others(std::string_view name) {
  return std::any_of(kOthers.begin(), kOthers.end(), [name](std::string_view other) {
    return other.ends_with('_') ? name.starts_with(other) : name == other;
  });
}

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

/// "did you mean WEFT_SPIN?"
std::string advice_for(std::string_view name) {
  std::vector<std::string_view> known;
  for (auto const& setting : kSettings) known.push_back(setting.variable);
  std::copy_if(kOthers.begin(), kOthers.end(), std::back_inserter(known),
               [](std::string_view other) { return !other.ends_with('_'); });
  auto const nearest = *std::min_element(known.begin(), known.end(), [name](std::string_view a, std::string_view b) {
    return std::pair(difference(a, name), a.size()) < std::pair(difference(b, name), b.size());
  });
  auto const own = name.size() - std::string_view("WEFT_").size();
  if (difference(nearest, name) > own / 2) return "docs/configuration.md lists those that there are";
  return fmt::format("did you mean {}?", nearest);
}

/// False when there is no such variable.
bool apply(Config& config, std::string_view name, std::string const& value) {
  auto const* const known =
      std::find_if(kSettings.begin(), kSettings.end(), [name](Setting const& s) { return s.variable == name; });
  if (known == kSettings.end()) return false;
  if (!known->read(config, value) || known->wrong(config)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}={}: expected {}", name, value, known->allowed));
  }
  return true;
}

/// The value of `name` in null-terminated "NAME=value" strings; empty when there is none.
std::string_view value_of(std::string_view name, char const* const* environment) {
  for (; *environment != nullptr; ++environment) {
    std::string_view const entry(*environment);
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name))
      return entry.substr(name.size() + 1);
  }
  return {};
}

std::optional<std::string> default_cache(char const* file, char const* const* environment) {
  auto const caches = value_of("XDG_CACHE_HOME", environment);
  auto const home = value_of("HOME", environment);
  if (!caches.empty()) return std::string(caches) + file;
  if (!home.empty()) return std::string(home) + "/.cache" + file;
  return std::nullopt;
}

using Log = void (*)(LogLevel, std::string const&) noexcept;

void warn_unknown(std::vector<std::string_view> const& names, Log log) {
  for (std::string_view const name : names) {
    log(LogLevel::warn, fmt::format("unknown variable {}: {}", name, advice_for(name)));
  }
}

Config read_environment(char const* const* environment, Log log) {
  Config config;
  config.tuning_cache = default_cache("/weft/tuning.json", environment);
  config.autotune_cache = default_cache("/weft/autotune.json", environment);
  std::vector<std::string_view> unknown;
  for (; *environment != nullptr; ++environment) {
    std::string_view const entry(*environment);
    std::size_t const equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view const name = entry.substr(0, equals);
    if (!name.starts_with("WEFT_") || belongs_to_others(name)) continue;
    if (!apply(config, name, std::string(entry.substr(equals + 1)))) unknown.push_back(name);
  }
  if (config.log_level != "error" && config.log_level != "off") warn_unknown(unknown, log);
  return config;
}

}  // namespace

std::string_view to_string(BackendKind kind) noexcept {
  switch (kind) {
    case BackendKind::shm: return "shm";
    case BackendKind::mpi: return "mpi";
    case BackendKind::hierarchical: return "hierarchical";
    case BackendKind::ucx: return "ucx";
    case BackendKind::hierarchical_ucx: return "hierarchical_ucx";
  }
  return "unknown backend";
}

std::string_view to_string(WireFormat format) noexcept {
  switch (format) {
    case WireFormat::f32: return "f32";
    case WireFormat::bf16: return "bf16";
    case WireFormat::fp8: return "fp8";
  }
  return "unknown wire format";
}

std::string_view to_string(DeviceBackendKind kind) noexcept {
  switch (kind) {
    case DeviceBackendKind::automatic: return "auto";
    case DeviceBackendKind::nccl: return "nccl";
    case DeviceBackendKind::staged: return "staged";
    case DeviceBackendKind::hierarchical: return "hierarchical";
  }
  return "unknown device backend";
}

std::optional<std::size_t> parse_bytes(std::string const& text) {
  auto const quantity = split_quantity<std::size_t>(text);
  if (!quantity) return std::nullopt;
  std::string_view const unit = quantity->unit;
  auto const binary = unit.empty() ? unit : unit.substr(1);  // "KiB" is "K": all are powers of 1024
  if (!binary.empty() && binary != "i" && binary != "iB") return std::nullopt;
  unsigned shift = 0;
  if (!unit.empty()) {
    switch (unit[0]) {
      case 'k':
      case 'K': shift = 10; break;
      case 'm':
      case 'M': shift = 20; break;
      case 'g':
      case 'G': shift = 30; break;
      case 't':
      case 'T': shift = 40; break;
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

void Config::check() const {
  for (Setting const& setting : kSettings) {
    if (auto const value = setting.wrong(*this)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("Config::{} is {}: expected {}", setting.member, *value, setting.allowed));
    }
  }
}

Config Config::from_environment() {
  return read_environment(environ, log_once);
}

Config Config::from_environment(char const* const* environment) {
  return read_environment(environment, log);
}

}  // namespace weft
